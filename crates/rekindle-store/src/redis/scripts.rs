//! The scripts that run on the server, put together from their parts.

use std::sync::LazyLock;

/// A script with the name the server knows it by once it was sent.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) code: String,
    pub(super) hash: String,
}

impl Script {
    fn new(code: String) -> Self {
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }
}

macro_rules! script {
    ($name:ident, $doc:literal, $($part:expr),+) => {
        #[doc = $doc]
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new([$($part),+].concat()));
    };
}

const GUARD: &str = include_str!("scripts/guard.lua");
const FRAMES: &str = include_str!("scripts/frames.lua");
const QUEUE: &str = include_str!("scripts/queue.lua");
const APPEND_BODY: &str = include_str!("scripts/append.lua");
/// The keys of a queue come first.
const FIRST: &str = "local Q = 1\n";

/// After the frames stand the id, the channel and what to say on it.
const WAKES: &str = "
local function appended(now)
  local last = 13 + 4 * ARGV[13]
  if wake(ARGV[last + 1], now) then redis.call('PUBLISH', ARGV[last + 2], 'r') end
  redis.call('PUBLISH', ARGV[last + 2], ARGV[last + 3])
end
";
const REMOVED: &str = "
local function removed(first, id)
  Q = first
  discard(id)
end
";

script!(SETUP, "What the store is.", include_str!("scripts/setup.lua"));
script!(APPEND, "Appends frames.", GUARD, "local function appended() end\n", APPEND_BODY);
script!(APPEND_AND_WAKE, "Appends frames to an inbox.", GUARD, "local Q = 4\n", QUEUE, WAKES, APPEND_BODY);
script!(INFO, "Everything but frames.", GUARD, include_str!("scripts/info.lua"));
script!(READ, "A page of frames.", GUARD, include_str!("scripts/read.lua"));
script!(CREATE, "Creates a session.", GUARD, FRAMES, include_str!("scripts/create.lua"));
script!(CHANGE, "Changes a session as it was read.", GUARD, FRAMES, include_str!("scripts/change.lua"));
script!(
    REMOVE,
    "Removes a session as it was read.",
    GUARD,
    FRAMES,
    "local Q = 1\n",
    QUEUE,
    REMOVED,
    include_str!("scripts/remove.lua")
);
script!(JOB, "A job.", GUARD, FIRST, QUEUE, include_str!("scripts/job.lua"));
script!(SWAP, "Changes a job as it was read.", GUARD, FIRST, QUEUE, include_str!("scripts/swap.lua"));
script!(CLAIM, "Takes jobs.", GUARD, FIRST, QUEUE, include_str!("scripts/claim.lua"));
script!(BEAT, "Renews claims.", GUARD, FIRST, QUEUE, include_str!("scripts/beat.lua"));
script!(WAKE, "Wakes a job.", GUARD, FIRST, QUEUE, include_str!("scripts/wake.lua"));
script!(
    ANNOUNCE,
    "Says that an inbox is about to be written.",
    GUARD,
    FIRST,
    QUEUE,
    include_str!("scripts/announce.lua")
);
script!(VALUE, "A small value.", GUARD, include_str!("scripts/value.lua"));
script!(VALUES, "Several small values.", GUARD, include_str!("scripts/values.lua"));
script!(CHANGE_VALUE, "Changes a small value.", GUARD, include_str!("scripts/change_value.lua"));
script!(LIST_VALUES, "A page of small values.", GUARD, include_str!("scripts/list_values.lua"));
script!(TIME, "The server's time.", GUARD, "return text(clock())");
script!(TOUCH, "A write, for its own sake.", GUARD, "return redis.call('INCR', KEYS[1])");
