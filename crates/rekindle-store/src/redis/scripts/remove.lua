-- KEYS: session, then frames, base and marks of each branch; the list.
-- ARGV: time, version decided upon, how many branches, entry of the list or nothing, id, fields that must be so.
-- Gives nothing if the session is not as it was, else frames and bytes that went.
local version, branches, entry, id = argument(), tonumber(argument()), argument(), argument()
if redis.call('HGET', KEYS[1], 'v') ~= version then return {} end
for _ = 1, tonumber(argument()) do
  local field, value = argument(), argument()
  if redis.call('HGET', KEYS[1], field) ~= value then return {} end
end
local frames, bytes = 0, 0
for branch = 1, branches do
  local first = 3 * branch - 1
  for key = first, first + 1 do
    local count, size = measure(KEYS[key], '+')
    frames = frames + count
    bytes = bytes + size
  end
  redis.call('UNLINK', KEYS[first], KEYS[first + 1], KEYS[first + 2])
end
redis.call('UNLINK', KEYS[1])
if entry ~= '' then
  local list = 2 + 3 * branches
  redis.call('ZREM', KEYS[list], entry)
  removed(list + 1, id)
end
return { frames, text(bytes) }
