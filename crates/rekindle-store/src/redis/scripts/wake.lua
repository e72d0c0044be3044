-- KEYS: queue. ARGV: time, id, channel, what to say of the inbox, name of the write. For a cluster, after the inbox
-- was written.
redis.call('ZREM', KEYS[Q + 5], ARGV[5])
if wake(ARGV[2], clock()) then redis.call('PUBLISH', ARGV[3], 'r') end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return 1
