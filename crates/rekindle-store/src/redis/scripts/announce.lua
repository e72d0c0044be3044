-- KEYS: queue. ARGV: time, id. For a cluster, before the inbox is written.
return redis.call('ZADD', KEYS[Q + 5], text(clock()), ARGV[2])
