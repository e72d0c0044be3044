-- KEYS: session, frames, marks.
-- ARGV: time, branch, expected head, new head, fence, renewal, status, header as known, new header, how many
-- frames; for each frame: last record, first record, entry of the index of marks, bytes.
-- Gives 1 if the frames were appended, 2 if the header is not the one known, else 0.
local branch = ARGV[2]
local state = redis.call('HMGET', KEYS[1], 'h:' .. branch, 'e:' .. branch, 'x:' .. branch)
if state[1] ~= ARGV[3] then return 0 end
local now = clock()
local live = state[3] and state[3] ~= '' and tonumber(state[3]) > now
if ARGV[5] ~= '' then
  if not live or state[2] ~= ARGV[5] then return 0 end
elseif live then
  return 0
end
if ARGV[9] ~= '' and redis.call('HGET', KEYS[1], 'header') ~= ARGV[8] then return 2 end
for at = 11, 7 + 4 * ARGV[10], 4 do
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
redis.call('HSET', KEYS[1], unpack(fields))
appended(now)
return 1
