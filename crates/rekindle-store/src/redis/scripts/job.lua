-- KEYS: queue. ARGV: time, id.
return { text(clock()), redis.call('HGET', jobs_key(), ARGV[2]) or '' }
