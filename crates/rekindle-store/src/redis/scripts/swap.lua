-- KEYS: queue, session. ARGV: time, id, job as it was or nothing, job as it is to be or nothing, whether the session
-- must be there, channel to say it on or nothing.
-- Gives 1 if it was changed, 0 if the job is another one by now, 2 if there is no session.
local id, before, after, channel = ARGV[2], ARGV[3], ARGV[4], ARGV[6]
if (redis.call('HGET', jobs_key(), id) or '') ~= before then return 0 end
if ARGV[5] == '1' and redis.call('EXISTS', KEYS[8]) == 0 then return 2 end
if after == '' then discard(id) else put(id, parts(after)) end
if channel ~= '' then redis.call('PUBLISH', channel, 'r') end
return 1
