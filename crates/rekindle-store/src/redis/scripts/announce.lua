-- KEYS: queue. ARGV: time, name of the write: id, zero byte, something no other write has. For a cluster, before the inbox
-- is written.
return redis.call('ZADD', KEYS[Q + 5], text(clock()), ARGV[2])
