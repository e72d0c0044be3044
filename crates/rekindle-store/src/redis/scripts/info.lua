-- KEYS: session, frames. ARGV: time, last record of a frame wanted too, or nothing.
local frame = {}
if ARGV[2] ~= '' then frame = redis.call('XRANGE', KEYS[2], ARGV[2] .. '-0', ARGV[2] .. '-0') end
return { text(clock()), redis.call('HGETALL', KEYS[1]), frame }
