//! An entry in a TOML file: one table, put behind all others or in the place of the one that was there.
//! Every other line stays as it was.

use ::toml::{Table, Value};
use rekindle::{Error, Result};

use super::Launch;

/// `text` with the table `[group.name]`.
pub fn merged(text: &str, group: &str, name: &str, launch: &Launch) -> Result<String> {
    let before = parsed(text)?;
    let mut entry = Table::new();
    entry.insert("command".to_owned(), launch.command.clone().into());
    entry.insert("args".to_owned(), launch.arguments.clone().into());
    let wanted = with_entry(before.clone(), group, name, entry.clone())?;
    if wanted == before {
        return Ok(text.to_owned());
    }
    let body = ::toml::to_string(&entry).map_err(|error| Error::invalid("it cannot be written").because(error))?;
    let kept = without_table(text, &format!("[{group}.{name}]"));
    let gap = if kept.trim().is_empty() { "" } else { "\n" };
    let after = format!("{}{gap}[{group}.{name}]\n{body}", ended(&kept));
    // Whatever way the old entry was written: what comes out means what was wanted, or nothing is written.
    match parsed(&after) {
        Ok(table) if table == wanted => Ok(after),
        _ => Err(Error::invalid(format!("`{group}.{name}` stands there in a way that cannot be replaced"))),
    }
}

fn parsed(text: &str) -> Result<Table> {
    text.parse::<Table>().map_err(|error| Error::invalid(format!("it is not TOML: {}", error.message())))
}

fn with_entry(mut whole: Table, group: &str, name: &str, entry: Table) -> Result<Table> {
    let servers = whole.entry(group).or_insert_with(|| Value::Table(Table::new()));
    let servers = servers.as_table_mut().ok_or_else(|| Error::invalid(format!("`{group}` in it is no table")))?;
    servers.insert(name.to_owned(), Value::Table(entry));
    Ok(whole)
}

/// The lines without those from `header` to the next table.
fn without_table(text: &str, header: &str) -> String {
    let mut within = false;
    let lines = text.split_inclusive('\n').filter(|line| {
        if line.trim_start().starts_with('[') {
            within = line.trim() == header;
        }
        !within
    });
    lines.collect()
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &str) -> Launch {
        Launch { command: command.to_owned(), arguments: vec!["mcp".to_owned(), "a \"b\"".to_owned()] }
    }

    #[test]
    fn every_other_line_stays() {
        let before = "# mine\nmodel = \"m\"\n\n[mcp_servers.other]\ncommand = \"x\" # why\n";
        let once = merged(before, "mcp_servers", "rekindle", &launch("r")).unwrap();
        assert!(once.starts_with(before), "{once}");
        let again = merged(&once, "mcp_servers", "rekindle", &launch("s")).unwrap();
        assert!(again.starts_with(before) && again.contains("\"s\"") && !again.contains("\"r\""), "{again}");
        assert_eq!(merged(&again, "mcp_servers", "rekindle", &launch("s")).unwrap(), again);
    }

    #[test]
    fn what_cannot_be_replaced_is_refused() {
        for text in ["= 1", "mcp_servers = 1", "[mcp_servers]\nrekindle = { command = \"x\" }\n"] {
            assert!(merged(text, "mcp_servers", "rekindle", &launch("r")).is_err(), "{text}");
        }
    }

    #[test]
    fn fuzzed_files() {
        let seeds = [
            "a = 1\n[mcp_servers.x]\ncommand = \"y\"\n",
            "# c\n[mcp_servers.rekindle]\ncommand = \"old\"\n[b]\nc = 2\n",
            "",
        ];
        rekindle_fuzz::fuzz!("toml-file")
            .seeds(seeds)
            .words(["[mcp_servers.rekindle]\n", "\"\"\"", "[[b]]\n", "#"])
            .text(|text| {
                let written = merged(text, "mcp_servers", "rekindle", &launch("new")).ok()?;
                let _ = parsed(&written).unwrap();
                Some(())
            });
    }
}
