-- KEYS: session, frames of the branch, its base, its marks.
-- ARGV: time, version decided upon, until when that decision holds or nothing, branch, record after which history
-- stays or nothing (`all`: nothing stays), fields to write, fields to remove, parts of a new base.
-- Gives nothing if the session is not as it was, else the head of the branch, and frames and bytes that went.
local version, holds, branch, keep = argument(), argument(), argument(), argument()
if redis.call('HGET', KEYS[1], 'v') ~= version then return {} end
if holds ~= '' and clock() >= tonumber(holds) then return {} end
local frames, bytes = 0, 0
local function drop(key, last)
  local count, size = measure(key, last)
  frames = frames + count
  bytes = bytes + size
end
if keep ~= '' then
  drop(KEYS[2], keep == 'all' and '+' or keep)
  drop(KEYS[3], '+')
  redis.call('DEL', KEYS[3])
end
if keep == 'all' then
  redis.call('DEL', KEYS[2], KEYS[4])
elseif keep ~= '' then
  local padded = string.rep('0', 20 - #keep) .. keep
  redis.call('XTRIM', KEYS[2], 'MINID', '=', keep .. '-1')
  redis.call('ZREMRANGEBYLEX', KEYS[4], '-', '(' .. padded .. ':')
end
write_fields(KEYS[1])
for _ = 1, tonumber(argument()) do redis.call('HDEL', KEYS[1], argument()) end
write_parts(KEYS[3])
redis.call('HINCRBY', KEYS[1], 'v', 1)
return { redis.call('HGET', KEYS[1], 'h:' .. branch) or '', frames, text(bytes) }
