//! HTTP: what every surface of Rekindle that is reached over the network shares, and the Model Context
//! Protocol under `/mcp`. [`ag_ui`] has messages in the shape of AG-UI.
//!
//! A [`Server`] listens on a port, where clients show a [`Token`], or on a socket of this machine, where the
//! system knows who they are; [`Access`] turns either into an identity, which is what goes on record. It
//! turns away what comes from pages of strangers (`Origin`) or under a name that is not its own (`Host`),
//! reads no more and waits no longer than its [`Limits`] say, and stops without cutting answers off.
//!
//! It knows no store and runs nothing: what it serves is given to it.

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

mod access;
pub mod ag_ui;
mod authority;
mod connection;
mod crowd;
mod limits;
mod listener;
mod mcp;
mod request;
mod server;
mod sessions;
mod token;

pub use access::Access;
pub use limits::Limits;
pub use rekindle::Identity;
pub use rmcp;
pub use server::Server;
pub use token::Token;
pub use tokio_util::sync::CancellationToken;
