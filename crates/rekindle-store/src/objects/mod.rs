//! Object storage: a bucket, a store whose sessions are objects in it, and large values of other
//! stores.

mod address;
mod backend;
mod bucket;
mod failure;
mod remote;

pub use backend::{Listed, Objects, Put, Stat, Write};
pub use bucket::Bucket;
