//! The table: what is done to the stored bytes, and what each command makes of it, by store and protection.

use super::expected::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Sqlite,
    Files,
    Objects,
    Postgres,
    Redis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Plain,
    Signed,
    Encrypted,
}

/// The fate of the high-water marks: beside SQLite and files, in an anchor of the other stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// There are none.
    Off,
    /// They are left alone.
    Kept,
    /// They are replaced together with the data.
    Along,
}

/// A part of session `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Frames of `main`.
    First,
    Middle,
    Last,
    /// The last frame of the inbox: the answer that the next run takes.
    Inbox,
    /// Facts the store keeps of a session beside its records.
    Header,
    /// The data keys of all sessions.
    Key,
    /// The branch `main`.
    Main,
    /// Its entry in what lists go by.
    Listed,
    /// All of it.
    Session,
}

/// A change of the stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A bit of it is changed.
    Flip(Part),
    /// It is deleted.
    Delete(Part),
    /// The headers of both sessions are exchanged.
    Exchange,
    /// The last frame of the other session takes the place of its own.
    Foreign,
    /// A branch is made up that begins before the call.
    Branch,
    /// The other branch, which begins before the call, is made the current one.
    Current,
    /// The marks of frames in the index are set to nothing.
    Hide,
    /// Somebody has a lease until the year 2255.
    Lease,
    /// The index says that the run succeeded.
    Status,
    /// The records behind the older copy are cut off, and the head is moved back.
    Cut,
    /// The whole store is as it was earlier.
    Older,
}

/// One kind of damage, and what it comes to in each store, in the order of [`Store`].
pub struct Row {
    pub how: How,
    pub marks: Marks,
    plain: [Cell; 5],
    signed: [Cell; 5],
    encrypted: [Cell; 5],
}

impl Store {
    pub fn name(self) -> &'static str {
        ["sqlite", "files", "objects", "postgres", "redis"][self as usize]
    }
}

impl Protection {
    pub fn name(self) -> &'static str {
        ["plain", "signed", "encrypted"][self as usize]
    }
}

impl Part {
    /// The place of a frame among so many.
    pub fn among(self, count: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Middle => count / 2,
            _ => count - 1,
        }
    }
}

impl Row {
    pub fn expected(&self, store: Store, protection: Protection) -> Cell {
        [&self.plain, &self.signed, &self.encrypted][protection as usize][store as usize]
    }
}

/// A row that is the same with every protection.
const fn same(how: How, marks: Marks, cells: [Cell; 5]) -> Row {
    Row { how, marks, plain: cells, signed: cells, encrypted: cells }
}

/// A row about data keys, which only encrypted sessions have.
const fn keys(how: How, encrypted: [Cell; 5]) -> Row {
    Row { how, marks: Off, plain: [NONE; 5], signed: [NONE; 5], encrypted }
}

/// A row that keys make a difference to.
const fn keyed(how: How, plain: [Cell; 5], protected: [Cell; 5]) -> Row {
    Row { how, marks: Off, plain, signed: protected, encrypted: protected }
}

use How::*;
use Marks::*;
use Part::*;

#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    //                                 SQLite     files      objects    PostgreSQL Redis
    same(Flip(First), Off,            [CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM]),
    same(Flip(Middle), Off,           [CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM]),
    same(Flip(Last), Off,             [CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM]),
    same(Flip(Inbox), Off,            [CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM,  CHECKSUM]),
    same(Flip(Header), Off,           [HEADER,    FROM_COPY, CLOSED,    HEADER,    HEADER]),
    // "Sessions are copied as they are, so encrypted ones need no key" (`copy --help`).
    keys(Flip(Key),                   [KEY_LOST,  KEY_DAMAGED, KEY_DAMAGED, KEY_LOST, KEY_LOST]),
    same(Exchange, Off,               [HEADER,    FROM_COPY, CLOSED,    HEADER,    HEADER]),
    // "Forks inside plain sessions begin with the hash they start from, as they always did" (docs/design/0014).
    keyed(Branch,                     [MADE_UP,   MADE_UP,   MADE_UP,   MADE_UP,   MADE_UP],
                                      [FORGED,    FORGED,    FORGED,    FORGED,    FORGED]),
    // "The seal of the header; the store's column is a hint for lists" (docs/design/0014).
    same(Current, Off,                [NOTHING,   NOTHING,   NOTHING,   NOTHING,   NOTHING]),
    // "Redis keeps the marks apart, so only filtered reads compare them" (docs/design/0003). Files have no such index.
    same(Hide, Off,                   [INDEX,     NONE,      INDEX,     INDEX,     COMPARED]),
    same(Lease, Off,                  [NOTHING,   NOTHING,   NOTHING,   NOTHING,   NOTHING]),
    same(Status, Off,                 [COMPARED,  COMPARED,  COMPARED,  COMPARED,  COMPARED]),
    same(Delete(Last), Off,           [MISSING,   MISSING,   CLOSED,    MISSING,   MISSING]),
    same(Delete(Middle), Off,         [MISSING,   MISSING,   CLOSED,    MISSING,   MISSING]),
    // A branch is no object of its own.
    same(Delete(Main), Off,           [MISSING,   MISSING,   NONE,      MISSING,   MISSING]),
    same(Delete(Header), Off,         [HEADLESS,  FROM_COPY, CLOSED,    HEADLESS,  CLOSED]),
    same(Delete(Header), Kept,        [MISSED,    FROM_COPY, CLOSED,    MISSED,    CLOSED]),
    // "What is left of the records in backups and copies can be put in order and not read" (docs/guarantees.md).
    keys(Delete(Key),                 [KEY_LOST,  KEY_LOST,  KEY_LOST,  KEY_LOST,  KEY_LOST]),
    // The last line or object is the end of a history: "it cannot show that its end was cut off" (docs/design/0015).
    same(Delete(Inbox), Off,          [MISSING,   SHORTER,   SHORTER,   MISSING,   MISSING]),
    same(Delete(Inbox), Kept,         [MISSING,   SET_BACK,  SET_BACK,  MISSING,   MISSING]),
    // Files list a directory, PostgreSQL its table.
    same(Delete(Listed), Off,         [UNLISTED,  NONE,      UNLISTED,  NONE,      UNLISTED]),
    same(Delete(Session), Kept,       [MISSED,    MISSED,    MISSED,    MISSED,    MISSED]),
    // "The only remedy is to know from elsewhere how far a session had come" (docs/design/0015).
    same(Delete(Session), Off,        [FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN, FORGOTTEN]),
    same(Foreign, Off,                [CHAIN,     CHAIN,     CHAIN,     CHAIN,     CHAIN]),
    // `session.json` knows where the branch ended.
    same(Cut, Kept,                   [SET_BACK,  MISSING,   SET_BACK,  SET_BACK,  SET_BACK]),
    // "It cannot show that its end was cut off: an older state of a session was once a whole state" (docs/design/0015).
    same(Cut, Off,                    [OLDER,     MISSING,   OLDER,     OLDER,     OLDER]),
    same(Older, Kept,                 [SET_BACK,  SET_BACK,  SET_BACK,  SET_BACK,  SET_BACK]),
    // "Whoever can replace data and marks together is only noticed by an anchor" (docs/design/0015): here, not even by it.
    same(Older, Along,                [OLDER,     OLDER,     OLDER,     OLDER,     OLDER]),
];
