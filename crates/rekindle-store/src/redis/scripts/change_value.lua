-- KEYS: values, their keys in order.
-- ARGV: time, key, `any`, `none` or `is`, what is expected, `set` or `delete`, value.
-- Gives 1 if the value was written, 2 if it is as wanted already, else 0 and what is there instead, if anything is.
local key, expects, expected, wants, value = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local current = redis.call('HGET', KEYS[1], key)
if wants == 'set' and current == value or wants == 'delete' and not current then return { 2 } end
if expects == 'none' and current or expects == 'is' and current ~= expected then
  return current and { 0, current } or { 0 }
end
if wants == 'set' then
  redis.call('HSET', KEYS[1], key, value)
  redis.call('ZADD', KEYS[2], 0, key)
else
  redis.call('HDEL', KEYS[1], key)
  redis.call('ZREM', KEYS[2], key)
end
return { 1 }
