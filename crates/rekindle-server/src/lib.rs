//! HTTP: what every surface of Rekindle that is reached over the network shares, and the Model Context
//! Protocol under `/mcp`.
//!
//! A [`Server`] listens on this machine unless it is told otherwise, and then only with a [`Token`]. It
//! turns away what comes from pages of strangers (`Origin`) or under a name that is not its own (`Host`),
//! reads no more and waits no longer than its [`Limits`] say, and stops without cutting answers off.
//!
//! It knows no store and runs nothing: what it serves is given to it.

mod access;
mod connection;
mod limits;
mod mcp;
mod request;
mod server;
mod token;

pub use access::Access;
pub use limits::Limits;
pub use rmcp;
pub use server::Server;
pub use token::Token;
pub use tokio_util::sync::CancellationToken;
