//! Everything people can do to sessions, in one place: every front end calls this and adds
//! nothing but words.

pub mod control;
