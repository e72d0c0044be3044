-- KEYS: values, their keys in order. ARGV: time, key. Gives the value, or nothing.
return redis.call('HGET', KEYS[1], ARGV[2])
