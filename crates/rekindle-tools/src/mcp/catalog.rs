//! The tools a server lists: asked for page by page, checked, filtered, named, and given options.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rekindle::tool::{ToolOptions, ToolSpec};
use rekindle::{Error, Json, Result};
use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool, ToolAnnotations};
use serde_json::Value;

use super::builder::Filter;
use super::call::McpTool;
use super::link::Lines;
use crate::checks::{self, MAX_NAME};
use crate::policy::ToolPolicy;

/// Asks for all tools. The error says what is wrong.
pub(super) async fn list(lines: &Lines) -> std::result::Result<Vec<Tool>, String> {
    let link = lines.link().await?;
    let (mut tools, mut cursors, mut cursor) = (Vec::new(), BTreeSet::new(), None);
    loop {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let page = match link.peer.send_request(ClientRequest::ListToolsRequest(request)).await {
            Ok(ServerResult::ListToolsResult(page)) => page,
            Ok(_) => return Err("its answer to `tools/list` is no list of tools".to_owned()),
            Err(error) => return Err(format!("it did not list its tools: {error}{}", link.last_words().await)),
        };
        tools.extend(page.tools);
        if tools.len() > lines.config.max_tools {
            return Err(format!("it has more than {} tools", lines.config.max_tools));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(tools),
            // A server that goes in circles, or gives empty pages for ever, would never come to an end.
            Some(next) if !cursors.insert(next.clone()) || cursors.len() > lines.config.max_tools => {
                return Err("its list of tools does not end".to_owned());
            }
            Some(_) => {}
        }
    }
}

/// Makes tools of what a server lists.
pub(super) fn tools(lines: &Arc<Lines>, listed: Vec<Tool>) -> Result<Vec<Arc<dyn rekindle::tool::Tool>>> {
    let filter = &lines.config.filter;
    let fault = |why: String| Error::invalid(format!("MCP server `{}`: {why}", lines.config.name));
    check_names(filter, &listed).map_err(fault)?;
    let mut tools: BTreeMap<String, McpTool> = BTreeMap::new();
    for tool in listed.into_iter().filter(|tool| filter.wants(&tool.name)) {
        let spec = spec(filter, &tool).map_err(|why| {
            fault(format!("its tool `{}` cannot be used: {why}", tool.name)).hint("leave it out with `exclude`")
        })?;
        let options = filter.options(&tool.name, tool.annotations.as_ref());
        let made = McpTool::new(spec, options, tool.name.into_owned(), Arc::clone(lines));
        let (name, own) = (made.name().to_owned(), made.own_name().to_owned());
        if let Some(other) = tools.insert(name.clone(), made) {
            let (one, hint) = (other.own_name(), "leave one of them out with `exclude`");
            return Err(fault(format!("its tools `{one}` and `{own}` are both `{name}` here")).hint(hint));
        }
    }
    Ok(tools.into_values().map(|tool| Arc::new(tool) as Arc<dyn rekindle::tool::Tool>).collect())
}

impl Filter {
    fn wants(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.contains(name)) && !self.exclude.contains(name)
    }

    /// What the engine must know of a tool: what is said of it by name, else of all, else what the
    /// server says if that is trusted, else that it writes.
    fn options(&self, name: &str, annotations: Option<&ToolAnnotations>) -> ToolOptions {
        let said = self.policies.get(name).cloned().unwrap_or_default().or(self.default.clone());
        let hinted = annotations.filter(|_| self.trust).map(hints).unwrap_or_default();
        said.or(hinted).apply(ToolOptions { writes: true, ..ToolOptions::default() })
    }
}

fn hints(annotations: &ToolAnnotations) -> ToolPolicy {
    match (annotations.read_only_hint, annotations.idempotent_hint) {
        (Some(true), _) => ToolPolicy::reads(),
        (_, Some(true)) => ToolPolicy::idempotent(),
        _ => ToolPolicy::writes(),
    }
}

/// An error if something is said of a tool that is not there.
fn check_names(filter: &Filter, listed: &[Tool]) -> std::result::Result<(), String> {
    let there: BTreeSet<&str> = listed.iter().map(|tool| &*tool.name).collect();
    let said = filter.include.iter().flatten().chain(filter.policies.keys());
    let missing: BTreeSet<&str> = said.map(String::as_str).filter(|name| !there.contains(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let join = |names: BTreeSet<&str>| names.into_iter().take(50).collect::<Vec<_>>().join(", ");
    Err(format!("it has no tool {}; it has {}", join(missing), join(there)))
}

fn spec(filter: &Filter, tool: &Tool) -> std::result::Result<ToolSpec, String> {
    let parameters = Json::from(Value::Object(tool.input_schema.as_ref().clone()));
    checks::schema(&parameters)?;
    if tool.name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let description = tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default();
    if description.len() > checks::MAX_SCHEMA_BYTES {
        return Err(format!("its description has {} bytes", description.len()));
    }
    Ok(ToolSpec {
        name: legal(&filter.prefix, &tool.name),
        description: description.to_owned(),
        parameters,
        version: None,
    })
}

/// A name that every provider takes.
fn legal(prefix: &str, name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    prefix.chars().chain(name.chars().map(legal)).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use rekindle::core::record::InDoubtPolicy;

    use super::*;

    #[test]
    fn names_become_legal() {
        let check = |prefix: &str, name: &str, expected: &str| assert_eq!(legal(prefix, name), expected);
        check("", "search", "search");
        check("gh_", "issues/list.all", "gh_issues_list_all");
        check("", "größe", "gr__e");
        check("", &"x".repeat(80), &"x".repeat(64));
    }

    #[test]
    fn hints_count_only_if_they_are_trusted() {
        let filter = |trust| Filter { trust, ..Filter::default() };
        let check = |filter: &Filter, annotations: ToolAnnotations, writes, policy| {
            let options = filter.options("t", Some(&annotations));
            assert_eq!((options.writes, options.policy()), (writes, policy), "{annotations:?}");
        };
        let (reads, idempotent) = (ToolAnnotations::new().read_only(true), ToolAnnotations::new().idempotent(true));
        check(&filter(false), reads.clone(), true, InDoubtPolicy::Ask);
        check(&filter(true), reads.clone(), false, InDoubtPolicy::ReplaySafe);
        check(&filter(true), idempotent.clone(), true, InDoubtPolicy::Idempotent);
        check(&filter(true), ToolAnnotations::new(), true, InDoubtPolicy::Ask);

        let said = Filter {
            default: ToolPolicy::writes(),
            policies: BTreeMap::from([("t".to_owned(), ToolPolicy::idempotent())]),
            ..filter(true)
        };
        check(&said, reads.clone(), true, InDoubtPolicy::Idempotent);
        assert_eq!(said.options("other", Some(&reads)).policy(), InDoubtPolicy::Ask);
    }
}
