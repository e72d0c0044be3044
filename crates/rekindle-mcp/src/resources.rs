//! Sessions and checkpoints as resources: the same JSON that the operations give.

use rekindle::core::{CheckpointInfo, Cursor};
use rekindle::operations::{self, At, HistoryOptions};
use rekindle::{Error, Result, SessionId, SessionInfo, SessionKey, SessionQuery};
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompletionInfo, ListResourceTemplatesResult, ListResourcesResult,
    ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
};
use serde::Serialize;

use crate::server::Core;
use crate::uri::{Address, CHECKPOINT_TEMPLATE, SESSION_TEMPLATE};

/// How many resources a page of the list has.
const PAGE: usize = 100;

/// The most bytes one resource may have.
const MAX_BYTES: usize = 8 << 20;

const JSON: &str = "application/json";

/// A page of sessions, newest first.
pub(crate) async fn list(core: &Core, cursor: Option<String>) -> Result<ListResourcesResult> {
    let mut query = SessionQuery::new(core.engine.namespace().clone()).with_limit(PAGE);
    query.after = cursor.map(Cursor::try_from).transpose()?;
    let found = operations::list(&core.engine, &query).await?;
    let mut result = ListResourcesResult::with_all_items(found.sessions.iter().map(resource).collect());
    result.next_cursor = found.next.map(String::from);
    Ok(result.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

fn resource(info: &SessionInfo) -> Resource {
    let id = &info.header.key.id;
    let description = match &info.header.agent {
        Some(agent) => format!("A session of `{agent}`, {}.", info.status()),
        None => format!("A session, {}.", info.status()),
    };
    Resource::new(Address::Session(id.clone()).uri(), id.as_str())
        .with_title(info.header.title.as_deref().unwrap_or(id.as_str()))
        .with_description(description)
        .with_mime_type(JSON)
}

/// The shapes of addresses.
pub(crate) fn templates() -> ListResourceTemplatesResult {
    let session = ResourceTemplate::new(SESSION_TEMPLATE, "session")
        .with_title("A session")
        .with_description("What it is doing, its branches, its last run, what it waits for, its newest checkpoints.")
        .with_mime_type(JSON);
    let checkpoint = ResourceTemplate::new(CHECKPOINT_TEMPLATE, "checkpoint")
        .with_title("A checkpoint")
        .with_description("The complete state of a session at a checkpoint.")
        .with_mime_type(JSON);
    ListResourceTemplatesResult::with_all_items(vec![session, checkpoint])
        .with_ttl_ms(300_000)
        .with_cache_scope(CacheScope::Public)
}

/// A session with its newest checkpoints.
#[derive(Serialize)]
struct SessionResource {
    #[serde(flatten)]
    shown: operations::Shown,
    checkpoints: Vec<CheckpointInfo>,
}

/// What stands at an address.
pub(crate) async fn read(core: &Core, uri: &str) -> Result<ReadResourceResult> {
    let text = match Address::parse(uri)? {
        Address::Session(id) => {
            let session = key(core, id);
            let shown = operations::show(&core.engine, &session).await?;
            let checkpoints = operations::history(&core.engine, &session, &HistoryOptions::default()).await;
            let checkpoints = checkpoints.map(|page| page.checkpoints).unwrap_or_default();
            written(&SessionResource { shown, checkpoints })
        }
        Address::Checkpoint(session, id) => {
            written(&operations::inspect(&core.engine, &key(core, session), &At::Checkpoint(id)).await?)
        }
    }?;
    let contents = ResourceContents::text(text, uri).with_mime_type(JSON);
    Ok(ReadResourceResult::new(vec![contents]).with_ttl_ms(0).with_cache_scope(CacheScope::Private))
}

fn key(core: &Core, id: SessionId) -> SessionKey {
    SessionKey::new(core.engine.namespace().clone(), id)
}

fn written(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::invalid("the resource cannot be written as JSON").because(error))?;
    if text.len() > MAX_BYTES {
        return Err(Error::limit("bytes of a resource", text.len() as u64, MAX_BYTES as u64)
            .hint("look at it piece by piece with `inspect_checkpoint`: `log`, `from`, `limit`, `register`"));
    }
    Ok(text)
}

/// What the arguments of a template may be.
pub(crate) async fn complete(core: &Core, request: CompleteRequestParams) -> Result<CompletionInfo> {
    let Reference::Resource(template) = &request.r#ref else { return Ok(CompletionInfo::default()) };
    let begun = request.argument.value.as_str();
    let (values, more) = match (template.uri.as_str(), request.argument.name.as_str()) {
        (SESSION_TEMPLATE | CHECKPOINT_TEMPLATE, "session_id") => sessions(core, begun).await?,
        (CHECKPOINT_TEMPLATE, "checkpoint_id") => {
            let known = request.context.as_ref().and_then(|context| context.get_argument("session_id"));
            let Some(session) = known else { return Ok(CompletionInfo::default()) };
            checkpoints(core, &core.key(session)?, begun).await?
        }
        _ => return Ok(CompletionInfo::default()),
    };
    CompletionInfo::with_pagination(values, None, more).map_err(Error::invalid)
}

async fn sessions(core: &Core, begun: &str) -> Result<(Vec<String>, bool)> {
    let mut query = SessionQuery::new(core.engine.namespace().clone()).with_limit(CompletionInfo::MAX_VALUES);
    query.text = Some(begun.to_owned()).filter(|text| !text.is_empty());
    let found = operations::list(&core.engine, &query).await?;
    let ids = found.sessions.iter().map(|info| info.header.key.id.to_string());
    Ok((ids.filter(|id| id.starts_with(begun)).collect(), found.next.is_some()))
}

async fn checkpoints(core: &Core, session: &SessionKey, begun: &str) -> Result<(Vec<String>, bool)> {
    let options = HistoryOptions { limit: CompletionInfo::MAX_VALUES, ..HistoryOptions::default() };
    let begins = |info: &CheckpointInfo| info.checkpoint.id.as_str().starts_with(begun);
    let found = operations::history_where(&core.engine, session, &options, begins).await?;
    Ok((found.checkpoints.iter().map(|info| info.checkpoint.id.to_string()).collect(), found.next.is_some()))
}
