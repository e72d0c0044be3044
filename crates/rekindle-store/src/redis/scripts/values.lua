-- KEYS: values, their keys in order. ARGV: time, keys. Gives the value of each key, or nothing.
return redis.call('HMGET', KEYS[1], unpack(ARGV, 2))
