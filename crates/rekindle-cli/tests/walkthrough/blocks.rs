//! The blocks of a Markdown document, and the commands of a block.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The first word behind the fence.
    pub language: String,
    /// The second.
    pub argument: Option<String>,
    /// What stands in it.
    pub text: String,
    /// The line of its fence, from 1.
    pub line: usize,
}

/// The blocks of a document, in order.
pub fn of(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in document.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (open.take(), fence) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                open = Some(Block { language, argument: words.next(), text: String::new(), line: number + 1 });
            }
            (None, None) => {}
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// The commands of a `console` block, each with the output that is shown behind it.
pub fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((command, _))) if continued => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, output))) => {
                output.push_str(line);
                output.push('\n');
            }
            (None, None) => {}
        }
        let is_command = line.starts_with("$ ") || continued;
        continued = is_command && line.ends_with('\\');
    }
    commands
}

#[test]
fn blocks_and_commands_are_found() {
    let blocks = of("a\n```console\n$ one \\\n  two\nout\n\n$ three\n```\n```yaml x.yaml\na: 1\n```\n");
    assert_eq!(blocks.len(), 2);
    assert_eq!((blocks[1].language.as_str(), blocks[1].argument.as_deref()), ("yaml", Some("x.yaml")));
    let found = commands(&blocks[0].text);
    assert_eq!(found, [("one \\\n  two".into(), "out\n\n".into()), ("three".into(), String::new())]);
}
