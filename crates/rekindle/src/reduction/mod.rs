//! History reduction: what of a conversation is sent to a model. A view only: recomputed before
//! every call from the full history, which it never shortens.
//!
//! [`Reduction`] says what to keep, [`HistoryIndex`] makes answering that cheap however long the
//! history is, and [`Reduction::plan`] gives the [`View`] to send, or the one to send to the model
//! that summarises first. For providers that keep the conversation themselves,
//! [`ProviderCursor`] says what they lack.
//!
//! Every view made here is whole: no call in it is open, no result in it lacks its call.
//!
//! ```
//! use std::sync::Arc;
//! use rekindle::message::Message;
//! use rekindle::reduction::{HistoryIndex, Plan, Reduction};
//!
//! let said = ["one", "two", "three"].map(|text| Message::user(text).to_json());
//! let history = Arc::new(said.into_iter().collect::<Result<Vec<_>, _>>()?);
//! let mut index = HistoryIndex::default();
//! let Plan::Send(view) = Reduction::KeepLast(2).plan(&mut index, &history, None)? else { unreachable!() };
//! assert_eq!(view.range(), 1..3);
//! # Ok::<(), rekindle::Error>(())
//! ```

mod closed;
mod cursor;
mod index;
mod plan;
mod policy;
#[cfg(test)]
mod testing;
mod view;

pub use cursor::ProviderCursor;
pub use index::{HistoryIndex, Place};
pub use plan::{Plan, Summary};
pub use policy::{Reduction, Summarise};
pub use view::View;
