//! The tools of MCP servers. A server is a process that speaks over its standard input and output, or
//! a URL. What a server says of its tools is a hint; what may be repeated is for whoever uses it to
//! say: see [`ToolPolicy`](crate::ToolPolicy).

mod builder;
mod call;
mod catalog;
mod handler;
mod link;
mod masks;
mod process;
mod result;

use std::sync::Arc;

use rekindle::tool::Tool;
use rekindle::{Error, ErrorKind, Result};

use builder::Config;
use link::Lines;

pub use builder::McpServerBuilder;

/// An MCP server that was reached.
///
/// ```no_run
/// use rekindle_tools::{McpServer, ToolPolicy};
/// # async fn connect(path: String) -> rekindle::Result<()> {
/// let server = McpServer::stdio("notes", ["notes-server", "--stdio"])
///     .environment([("PATH", path)])
///     .prefix("notes_")
///     .policy("search", ToolPolicy::reads())
///     .policy("append", ToolPolicy::idempotent())
///     .connect()
///     .await?;
/// for tool in server.tools().await? {
///     // `AgentBuilder::shared_tool` takes it.
///     assert!(tool.spec().name.starts_with("notes_"));
/// }
/// server.shutdown().await;
/// # Ok(()) }
/// ```
///
/// # What happens when it dies
/// The next call starts or reaches it again. Of a call that was under way nobody knows whether it
/// took effect: one that may be repeated is tried again, any other fails and says so. A server can
/// tell repeated calls by `rekindle/idempotencyKey` in the `_meta` of a request, which is the same
/// over retries and resumes.
///
/// A server that is a program ends with this process, however that dies, and when this process is
/// frozen for more than eight seconds: a guard beside it sees to that. Before anything is decided about
/// a call in doubt, servers whose process is gone have ended.
///
/// # What changes
/// The tools are those the server had when [`McpServer::tools`] was called. They are part of what an
/// agent depends on, so that another list shows as drift when a session is resumed.
///
/// Clones share the connection. It ends with the last of them and of their tools, or by
/// [`McpServer::shutdown`].
///
/// # Limits
/// A message of a program that is longer than 16 MiB is lost, so that its call takes until its
/// timeout; results are held to [`ToolOptions::max_result_bytes`](rekindle::tool::ToolOptions). A server may ask for nothing:
/// neither answers of a model, nor files, nor people.
#[derive(Clone, Debug)]
pub struct McpServer {
    lines: Arc<Lines>,
}

impl McpServer {
    /// A server that is a program: it is started with exactly the variables it is given.
    pub fn stdio(name: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> McpServerBuilder {
        McpServerBuilder::stdio(name.into(), command.into_iter().map(Into::into).collect())
    }

    /// A server at a URL (streamable HTTP).
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> McpServerBuilder {
        McpServerBuilder::http(name.into(), url.into())
    }

    async fn connect(config: Config) -> Result<Self> {
        let lines = Arc::new(Lines::new(config));
        lines.link().await.map_err(|why| failed(&lines, why))?;
        Ok(Self { lines })
    }

    /// The name it was given here.
    pub fn name(&self) -> &str {
        &self.lines.config.name
    }

    /// Its tools, in the order of their names. An error names the tool that cannot be used, and why;
    /// [`McpServerBuilder::exclude`] leaves it out.
    pub async fn tools(&self) -> Result<Vec<Arc<dyn Tool>>> {
        let listed = tokio::time::timeout(self.lines.config.connect_timeout, catalog::list(&self.lines)).await;
        let listed = listed.unwrap_or_else(|_| Err("it did not list its tools in time".to_owned()));
        let listed = listed.map_err(|why| failed(&self.lines, why))?;
        catalog::tools(&self.lines, listed)
    }

    /// Ends the connection: a program is told by the end of its input, and made to end if it does
    /// not soon. Calls fail from now on.
    pub async fn shutdown(&self) {
        self.lines.shutdown().await;
    }
}

fn failed(lines: &Lines, why: String) -> Error {
    let config = &lines.config;
    let why = config.masks.text(why);
    Error::new(ErrorKind::StepFailed, format!("MCP server `{}` ({}): {why}", config.name, config.place()))
}
