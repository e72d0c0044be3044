//! Ready-made tools for Rekindle agents: programs, HTTP requests, files under a root, and the tools
//! of MCP servers. What an agent file declares becomes one of these; a Rust program builds them
//! itself.
//!
//! ```
//! use rekindle_tools::{CommandOutput, CommandTool, FileAccess, HttpBody, HttpTool, file_tools};
//! use rekindle::Json;
//!
//! let city = Json::parse(r#"{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}"#)?;
//!
//! let greet = CommandTool::builder("greet", "Greets a city.")
//!     .parameters(city.clone())
//!     .command(["printf", "hello %s", "${arguments.city}"])
//!     .output(CommandOutput::Text)
//!     .build()?;
//!
//! let book = HttpTool::builder("book", "Books a room.")
//!     .parameters(city)
//!     .method("POST")
//!     .url("https://rooms.example/cities/${arguments.city}/bookings")
//!     .header("Authorization", "Bearer ${secrets.rooms}")
//!     .body(HttpBody::Arguments)
//!     .idempotency_header("Idempotency-Key") // the server honours it
//!     .build()?;
//!
//! # let directory = std::env::temp_dir();
//! let files = file_tools(directory, FileAccess::ReadOnly)?;
//! # let _ = (greet, book, files);
//! # Ok::<(), rekindle::Error>(())
//! ```
//!
//! # Templates
//! Commands, URLs, headers, bodies and environment variables may hold references:
//!
//! | reference | what it stands for |
//! | --- | --- |
//! | `${arguments.city}`, `${arguments.rows.0.id}` | an argument of the call, or what a path in it leads to |
//! | `${idempotency_key}` | the same over retries and resumes of one call |
//! | `${session}` | the session that calls |
//! | `${secrets.token}` | a secret of the session; only in headers and environment variables |
//!
//! `$${` stands for `${`. A value never changes what surrounds it: it is one argument, one segment
//! of a path, one value of a query.
//!
//! # What runs twice
//! Each tool declares what is done with a call that was under way when its process died:
//!
//! | tool | unless more is said |
//! | --- | --- |
//! | [`CommandTool`] | writes, so a person is asked; [`check_command`](CommandToolBuilder::check_command) asks a program instead |
//! | [`HttpTool`] | GET, HEAD, OPTIONS read; PUT and DELETE may be repeated; POST and PATCH only with a [declared header](HttpToolBuilder::idempotency_header), otherwise a person is asked |
//! | [`ReadFile`], [`ListFiles`] | read |
//! | [`WriteFile`] | may be repeated: the same content again is the same |
//! | [`EditFile`] | the file is looked at |
//! | tools of an MCP server | write, so a person is asked, unless [`ToolPolicy`] or trusted annotations say otherwise |
//!
//! # Limits
//! Unix only. Nothing here reads the environment of the process or prints: children get exactly the
//! variables they are given, and requests use no proxy.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod checks;
pub mod command;
pub mod files;
pub mod http;
#[cfg(feature = "mcp")]
pub mod mcp;
mod outcome;
mod policy;
mod process;
mod template;

pub use command::{CommandOutput, CommandTool, CommandToolBuilder, Stdin};
pub use files::{
    EditFile, FileAccess, FileToolBuilder, ListFiles, Protected, ReadFile, WriteFile, file_tools, file_tools_except,
};
pub use http::{HttpBody, HttpTool, HttpToolBuilder};
#[cfg(feature = "mcp")]
pub use mcp::{McpServer, McpServerBuilder};
pub use policy::ToolPolicy;
