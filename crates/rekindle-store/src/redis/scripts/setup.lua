-- KEYS: where the store says what it is. ARGV: what to say if there is nothing, or nothing.
if ARGV[1] ~= '' then redis.call('SET', KEYS[1], ARGV[1], 'NX') end
return redis.call('GET', KEYS[1])
