-- KEYS: session, frames, marks.
-- ARGV: time, branch, expected head, new head, fence, renewal, status, header as known, new header, field of a
-- condition or nothing, value it must have, last record about a wait or nothing, how many frames; for each frame:
-- last record, first record, entry of the index of marks, bytes.
-- Gives 1 if the frames were appended, 2 if the header is not the one known, else 0.
local branch = ARGV[2]
local state = redis.call('HMGET', KEYS[1], 'h:' .. branch, 'e:' .. branch, 'x:' .. branch)
if state[1] ~= ARGV[3] then return 0 end
local now = clock()
-- A lease ends within a day, the longest there is, or counts as expired.
local ends = state[3] and state[3] ~= '' and tonumber(state[3])
local live = ends and ends > now and ends <= now + 86400000000
if ARGV[5] ~= '' then
  if not live or state[2] ~= ARGV[5] then return 0 end
elseif live then
  return 0
end
if ARGV[9] ~= '' and redis.call('HGET', KEYS[1], 'header') ~= ARGV[8] then return 2 end
if ARGV[10] ~= '' then
  local other = redis.call('HMGET', KEYS[1], 'i:' .. string.sub(ARGV[10], 3), ARGV[10])
  if not other[1] or (other[2] or '0') ~= ARGV[11] then return 0 end
end
for at = 14, 10 + 4 * ARGV[13], 4 do
  redis.call('XADD', KEYS[2], ARGV[at] .. '-0', ARGV[at + 1], ARGV[at + 3])
  if ARGV[at + 2] ~= '' then redis.call('ZADD', KEYS[3], 0, ARGV[at + 2]) end
end
local fields = { 'h:' .. branch, ARGV[4], 'u:' .. branch, text(now) }
local function also(field, value)
  if value ~= '' then
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
end
also('s:' .. branch, ARGV[7])
also('x:' .. branch, ARGV[6] ~= '' and later(now, ARGV[6]) or '')
also('header', ARGV[9])
also('w:' .. branch, ARGV[12])
redis.call('HSET', KEYS[1], unpack(fields))
appended(now)
return 1
