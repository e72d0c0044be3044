-- KEYS: session, base of main, list.
-- ARGV: time, nonce of this call, entry of the list or nothing, fields, parts of the base.
-- Gives 1 if the session is there now by this call, which may have been sent twice.
local nonce, entry = argument(), argument()
local made = redis.call('HGET', KEYS[1], 'made')
if made then return made == nonce and 1 or 0 end
redis.call('HSET', KEYS[1], 'made', nonce)
write_fields(KEYS[1])
write_parts(KEYS[2])
if entry ~= '' then redis.call('ZADD', KEYS[3], 0, entry) end
return 1
