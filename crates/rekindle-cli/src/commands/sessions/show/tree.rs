//! The sessions a session started, and those they started.

use std::collections::{BTreeSet, VecDeque};

use rekindle::operations;
use rekindle::{Engine, Result, SessionInfo, SessionKey, SessionQuery};

use crate::ui::spans::Spans;
use crate::ui::style;

/// How many are shown, and how deep.
const MOST: usize = 200;
const DEEPEST: usize = 8;

/// A session below another.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    line: Spans,
}

/// The tree below `root`.
pub async fn lines(engine: &Engine, root: &SessionKey, columns: usize) -> Result<Vec<String>> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut seen = BTreeSet::from([root.clone()]);
    let mut open = VecDeque::from([(root.clone(), None, 0)]);
    while let Some((session, parent, depth)) = open.pop_front() {
        let mut query = SessionQuery::new(session.namespace.clone()).with_limit(MOST);
        query.parent = Some(session);
        query.oldest_first = true;
        for info in operations::list(engine, &query).await?.sessions {
            if nodes.len() == MOST || !seen.insert(info.header.key.clone()) {
                continue;
            }
            if depth < DEEPEST {
                open.push_back((info.header.key.clone(), Some(nodes.len()), depth + 1));
            }
            nodes.push(Node { parent, line: about(&info) });
        }
    }
    let mut lines = Vec::new();
    draw(&nodes, None, "  ", columns, &mut lines);
    if nodes.len() == MOST {
        lines.push(format!("  {}only the first {MOST} are shown{}", style::DIM, style::RESET));
    }
    Ok(lines)
}

fn about(info: &SessionInfo) -> Spans {
    let status = crate::owner::status(info).to_string();
    let sign = format!("{} ", style::sign_of_status(&status));
    let mut spans =
        Spans::new().styled(sign, style::of_status(&status)).styled(info.header.key.id.as_str(), style::NAME);
    spans = spans.styled(format!(" {status}"), style::of_status(&status));
    for more in [&info.header.agent, &info.header.title].into_iter().flatten() {
        spans = spans.styled(format!("  {more}"), style::DIM);
    }
    spans
}

fn draw(nodes: &[Node], parent: Option<usize>, before: &str, columns: usize, lines: &mut Vec<String>) {
    let below: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].parent == parent).collect();
    for (number, index) in below.iter().enumerate() {
        let last = number + 1 == below.len();
        let (branch, under) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let room = columns.saturating_sub(before.chars().count() + 3).max(16);
        lines.push(format!("{before}{branch}{}", nodes[*index].line.line(room)));
        draw(nodes, Some(*index), &format!("{before}{under}"), columns, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_drawn_with_its_levels() {
        let node = |parent, name: &str| Node { parent, line: Spans::new().plain(name) };
        let nodes = [node(None, "a"), node(None, "b"), node(Some(0), "a1"), node(Some(0), "a2"), node(Some(2), "a1x")];
        let mut lines = Vec::new();
        draw(&nodes, None, "", 80, &mut lines);
        assert_eq!(lines, ["├─ a", "│  ├─ a1", "│  │  └─ a1x", "│  └─ a2", "└─ b"]);
    }
}
