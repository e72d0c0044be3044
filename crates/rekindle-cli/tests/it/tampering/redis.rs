//! Damage to the keys of Redis, with scripts of its own language.

use rekindle::core::Hash;
use rekindle_fixtures::Redis;

use super::prepared::Copied;
use super::table::{How, Part};

/// Copies all keys with a prefix.
pub fn duplicate(from: &str, to: &str) {
    let script = "local count = 0
        for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
          redis.call('RESTORE', ARGV[2] .. string.sub(key, #ARGV[1] + 1), 0, redis.call('DUMP', key))
          count = count + 1
        end
        return count";
    assert_ne!(Redis::shared().command(&["EVAL", script, "0", from, to]), "0");
}

/// Functions the scripts share: `flip` changes one bit, `rewrite` makes a stream anew with what a function makes of
/// each frame, nothing to leave it out.
const TOOLS: &str = "
local function flip(text)
  local at = math.floor(#text / 2)
  return string.sub(text, 1, at) .. string.char(bit.bxor(string.byte(text, at + 1), 1)) .. string.sub(text, at + 2)
end
local function rewrite(key, change)
  local all = redis.call('XRANGE', key, '-', '+')
  redis.call('DEL', key)
  for number, entry in ipairs(all) do
    local frame = change(number, entry[2][2])
    if frame then redis.call('XADD', key, entry[1], entry[2][1], frame) end
  end
  return 1
end
local function hex(text) return (string.gsub(text, '.', function(c) return string.format('%02x', string.byte(c)) end)) end
";

pub fn damage(copied: &Copied, how: How) {
    let prefix = &copied.name;
    let tag = |session: &str| format!("{prefix}:{{{}}}", short_hash(&format!("default\0{session}")));
    let stream = |session: &str, branch: &str| format!("{}:frames:{}", tag(session), short_hash(branch));
    let (session, other, space) = (tag("s") + ":session", tag("t") + ":session", short_hash("default"));
    let (main, foreign) = (stream("s", "main"), stream("t", "main"));
    let values = format!("{prefix}:{{{space}}}:values:data-key");
    let list = format!("{prefix}:{{{space}}}:list");
    let eval = |script: &str, keys: &[&str], more: &[&str]| {
        let script = format!("{TOOLS}{script}");
        let count = keys.len().to_string();
        let words = [&["EVAL", &script, &count], keys, more].concat();
        let told = Redis::shared().command(&words);
        assert!(!told.is_empty() && told != "0" && !told.starts_with("ERR"), "{how:?}: {told}");
    };
    let set = |field: &str, value: &str| {
        eval("redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return 1", &[&session], &[field, value])
    };
    let at = |part: Part| {
        let key = if part == Part::Inbox { stream("s", "inbox") } else { main.clone() };
        let count = Redis::shared().command(&["XLEN", &key]).parse().unwrap();
        (key, (part.among(count) + 1).to_string())
    };
    match how {
        How::Flip(Part::Header) => {
            eval(
                "return redis.call('HSET', KEYS[1], 'header', flip(redis.call('HGET', KEYS[1], 'header'))) + 1",
                &[&session],
                &[],
            );
        }
        How::Flip(Part::Key) => {
            let script = "local count = 0 for _, key in ipairs(redis.call('HKEYS', KEYS[1])) do
                redis.call('HSET', KEYS[1], key, flip(redis.call('HGET', KEYS[1], key))) count = count + 1 end return count";
            eval(script, &[&values], &[]);
        }
        How::Flip(part) => {
            let (key, number) = at(part);
            let script = "return rewrite(KEYS[1], function(number, frame)
                if number == tonumber(ARGV[1]) then return flip(frame) end return frame end)";
            eval(script, &[&key], &[&number]);
        }
        How::Exchange => {
            let script = "local one, two = redis.call('HGET', KEYS[1], 'header'), redis.call('HGET', KEYS[2], 'header')
                redis.call('HSET', KEYS[1], 'header', two) redis.call('HSET', KEYS[2], 'header', one) return 1";
            eval(script, &[&session, &other], &[]);
        }
        How::Foreign => {
            let script = "local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)[1][2][2]
                return rewrite(KEYS[1], function(number, frame)
                  if number == tonumber(ARGV[1]) then return last end return frame end)";
            eval(script, &[&main, &foreign], &[&at(Part::Last).1]);
        }
        How::Branch => {
            let script = "local frame = redis.call('XRANGE', KEYS[2], '21-0', '21-0')[1][2][2]
                local hash = hex(string.sub(frame, 81, 112))
                local at = string.match(redis.call('HGET', KEYS[1], 'i:main'), '\"created_at\":(%d+)')
                local head = '{\"seq\":21,\"hash\":\"' .. hash .. '\"}'
                local info = '{\"place\":9,\"info\":{\"branch\":\"forged\",\"parent\":{\"branch\":\"main\",\"seq\":21},\"head\":' .. head ..
                  ',\"created_at\":' .. at .. ',\"updated_at\":' .. at .. ',\"epoch\":1}}'
                redis.call('HSET', KEYS[1], 'i:forged', info, 'e:forged', '', 'x:forged', '', 'h:forged', '21 ' .. hash,
                  'u:forged', at, 's:forged', 'idle')
                return 1";
            eval(script, &[&session, &main], &[]);
        }
        How::Current => set("current", "other"),
        How::Hide => {
            let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':marks:*')) do
                for _, entry in ipairs(redis.call('ZRANGE', key, 0, -1)) do
                  redis.call('ZREM', key, entry) redis.call('ZADD', key, 0, string.sub(entry, 1, 40) .. '0')
                end end return 1";
            eval(script, &[&session], &[&tag("s")]);
        }
        How::Lease => {
            let script = "local info = redis.call('HGET', KEYS[1], 'i:main')
                local epoch = string.match(info, '\"epoch\":(%d+)')
                local lease = ',\"lease\":{\"owner\":\"somebody\",\"epoch\":' .. epoch .. ',\"expires_at\":9000000000000000}}}'
                redis.call('HSET', KEYS[1], 'i:main', string.sub(info, 1, -3) .. lease, 'e:main', epoch, 'x:main', '9000000000000000')
                return 1";
            eval(script, &[&session], &[]);
        }
        How::Status => set("s:main", "succeeded"),
        How::Cut => {
            let script = "local frame = redis.call('XRANGE', KEYS[2], '16-0', '16-0')[1][2][2]
                redis.call('HSET', KEYS[1], 'h:main', '16 ' .. hex(string.sub(frame, 81, 112)), 's:main', 'waiting')
                local kept = #redis.call('XRANGE', KEYS[2], '-', '16-0')
                rewrite(KEYS[2], function(number, frame) if number <= kept then return frame end end)
                for _, entry in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
                  if tonumber(string.sub(entry, 1, 20)) > 16 then redis.call('ZREM', KEYS[3], entry) end
                end return 1";
            eval(script, &[&session, &main, &main.replace(":frames:", ":marks:")], &[]);
        }
        How::Older => {}
        How::Delete(Part::Header) => eval("return redis.call('HDEL', KEYS[1], 'header')", &[&session], &[]),
        How::Delete(Part::Key) => eval("return redis.call('DEL', KEYS[1])", &[&values], &[]),
        How::Delete(Part::Main) => {
            let script = "return redis.call('HDEL', KEYS[1], 'i:main', 'e:main', 'x:main', 'h:main', 'u:main', 's:main', 'w:main')";
            eval(script, &[&session], &[]);
        }
        How::Delete(Part::Session) => {
            let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do redis.call('DEL', key) end
                for _, entry in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
                  if string.sub(entry, 21) == 's' then return redis.call('ZREM', KEYS[1], entry) end
                end return 0";
            eval(script, &[&list], &[&tag("s")]);
        }
        How::Delete(Part::Listed) => {
            let script = "for _, entry in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
                  if string.sub(entry, 21) == 's' then return redis.call('ZREM', KEYS[1], entry) end
                end return 0";
            eval(script, &[&list], &[]);
        }
        How::Delete(part) => {
            let (key, number) = at(part);
            let script = "return rewrite(KEYS[1], function(number, frame)
                if number ~= tonumber(ARGV[1]) then return frame end end)";
            eval(script, &[&key], &[&number]);
        }
    }
}

/// The form of a name in keys: half of its BLAKE3 hash.
fn short_hash(text: &str) -> String {
    Hash::of(text.as_bytes()).to_string()[..32].to_owned()
}
