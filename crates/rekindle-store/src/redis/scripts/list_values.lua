-- KEYS: values, their keys in order. ARGV: time, where to begin, values at most, bytes after which a page ends.
-- Gives whether there is more, then key and value of each.
local limit, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local page, bytes = { 0 }, 0
for _, key in ipairs(redis.call('ZRANGE', KEYS[2], ARGV[2], '+', 'BYLEX', 'LIMIT', 0, limit + 1)) do
  if #page >= 1 + 2 * limit or bytes >= most then
    page[1] = 1
    break
  end
  local value = redis.call('HGET', KEYS[1], key)
  page[#page + 1] = key
  page[#page + 1] = value
  bytes = bytes + #key + #(value or '')
end
return page
