//! Tools that read and write files under a root. No path leads out of it: not an absolute one, not
//! `..`, and no symbolic link, since none is followed. Each directory on the way is opened by its
//! name in the one before, so that nobody can slip a link in between a check and its use.

mod builder;
mod edit;
mod list;
mod protected;
mod read;
mod root;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use rekindle::tool::{Tool, ToolError, ToolOutput};
use rekindle::{Json, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use builder::FileToolBuilder;
pub use edit::EditFile;
pub use list::ListFiles;
pub use protected::Protected;
pub use read::ReadFile;
pub use write::WriteFile;

/// What tools may do to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// [`ReadFile`] and [`ListFiles`].
    ReadOnly,
    /// Also [`WriteFile`] and [`EditFile`].
    ReadWrite,
}

/// The tools for the files under `root`, as they are without further settings.
///
/// ```
/// use rekindle_tools::{FileAccess, file_tools};
/// # let root = std::env::temp_dir();
/// let tools = file_tools(root, FileAccess::ReadWrite)?;
/// let names: Vec<_> = tools.iter().map(|tool| tool.spec().name.as_str()).collect();
/// assert_eq!(names, ["read_file", "list_files", "write_file", "edit_file"]);
/// # Ok::<(), rekindle::Error>(())
/// ```
pub fn file_tools(root: impl Into<PathBuf>, access: FileAccess) -> Result<Vec<Arc<dyn Tool>>> {
    file_tools_except(root, access, &Protected::default())
}

/// The same, of which none writes what is protected.
pub fn file_tools_except(
    root: impl Into<PathBuf>,
    access: FileAccess,
    protected: &Protected,
) -> Result<Vec<Arc<dyn Tool>>> {
    let root = root.into();
    let read = ReadFile::builder(&root).build()?;
    let list = ListFiles::builder(&root).build()?;
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(read), Arc::new(list)];
    if access == FileAccess::ReadWrite {
        tools.push(Arc::new(WriteFile::builder(&root).protect(protected.clone()).build()?));
        tools.push(Arc::new(EditFile::builder(root).protect(protected.clone()).build()?));
    }
    Ok(tools)
}

/// The arguments of a call.
fn decode<A: DeserializeOwned>(arguments: &Json) -> Result<A, ToolError> {
    let decoded = serde_json::from_str(arguments.as_str());
    decoded.map_err(|error| ToolError::failed(format!("the arguments do not fit: {error}")))
}

/// Does what may block where that hinders nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, ToolError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| ToolError::failed(format!("the work on the file was lost: {error}")))?;
    done.map_err(ToolError::failed)
}

fn output(value: Value) -> ToolOutput {
    ToolOutput::json(Json::from(value))
}

/// How many lines a text has.
fn lines(text: &str) -> usize {
    text.lines().count()
}
