-- KEYS: queue. ARGV: time, worker, for how long, what is known of it or nothing if it ends, how many claims, then
-- id and number of each. Gives the time, then the ids of claims that are lost.
local now, worker, hold = clock(), ARGV[2], ARGV[3]
local answer = { text(now) }
for at = 6, 4 + 2 * ARGV[5], 2 do
  local id, number = ARGV[at], ARGV[at + 1]
  local job = find(id)
  if job and job[WORKER] == worker and job[NUMBER] == number then
    job[READY] = later(now, hold)
    put(id, job)
  else
    answer[#answer + 1] = id
  end
end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[Q + 6], worker)
else
  redis.call('HSET', KEYS[Q + 6], worker, text(now) .. ' ' .. later(now, hold) .. ' ' .. ARGV[4])
end
local known = redis.call('HGETALL', KEYS[Q + 6])
for at = 1, #known, 2 do
  local until_when = string.match(known[at + 1], '^%d+ (%d+) ')
  if tonumber(until_when) <= now then redis.call('HDEL', KEYS[Q + 6], known[at]) end
end
return answer
