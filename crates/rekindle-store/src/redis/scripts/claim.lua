-- KEYS: queue. ARGV: time, worker, for how long, how many at most, for how long an inbox may be pending; how many
-- queues, then queues; how many agents or `any`, then agents; how many limits, then agent and limit of each.
-- Gives the time, when the next one becomes ready, then id and job of each.
local at = 5
local function argument()
  at = at + 1
  return ARGV[at]
end
local now, worker, hold, most = clock(), ARGV[2], ARGV[3], tonumber(ARGV[4])
local function set(count)
  local list = {}
  for _ = 1, count do list[argument()] = true end
  return list
end
local count = tonumber(argument())
local queues = count > 0 and set(count) or nil
count = argument()
local agents = count ~= 'any' and set(tonumber(count)) or nil
local limits = {}
for _ = 1, tonumber(argument()) do
  local agent = argument()
  limits[agent] = tonumber(argument())
end

-- An inbox whose writer was not heard of again: it may have been written.
for _, write in ipairs(redis.call('ZRANGEBYSCORE', KEYS[Q + 5], '-inf', text(now - tonumber(ARGV[5])))) do
  redis.call('ZREM', KEYS[Q + 5], write)
  wake(string.match(write, '^[^%z]*'), now)
end
-- What has become ready.
while true do
  local ids = redis.call('ZRANGEBYSCORE', KEYS[Q + 2], '-inf', text(now), 'LIMIT', 0, 100)
  if #ids == 0 then break end
  for _, id in ipairs(ids) do
    local job = find(id)
    redis.call('ZREM', KEYS[Q + 2], id)
    if job then redis.call('ZADD', KEYS[Q + 3], 0, place(id, job)) end
  end
end

local function wants(job)
  return job and (not queues or queues[job[QUEUE]]) and (not agents or agents[job[AGENT]])
end
local by_agent, by_key
local function tally()
  by_agent, by_key = {}, {}
  for _, id in ipairs(redis.call('SMEMBERS', KEYS[Q + 4])) do
    local job = find(id)
    if job and held(job, now) then
      by_agent[job[AGENT]] = (by_agent[job[AGENT]] or 0) + 1
      by_key[job[KEY]] = (by_key[job[KEY]] or 0) + 1
    end
  end
end
local function allowed(job)
  local limit = job[AGENT] ~= '' and limits[job[AGENT]] or nil
  if not limit and job[KEY] == '' then return true end
  if not by_agent then tally() end
  return (not limit or (by_agent[job[AGENT]] or 0) < limit)
    and (job[KEY] == '' or (by_key[job[KEY]] or 0) < tonumber(job[MOST]))
end

local taken, from = {}, 0
while #taken < most do
  local places = redis.call('ZRANGE', KEYS[Q + 3], from, from + 99)
  for _, entry in ipairs(places) do
    if #taken == most then break end
    local id = string.sub(entry, 31)
    local job = find(id)
    if wants(job) and allowed(job) then
      taken[#taken + 1] = { id, job }
      if by_agent then
        by_agent[job[AGENT]] = (by_agent[job[AGENT]] or 0) + 1
        by_key[job[KEY]] = (by_key[job[KEY]] or 0) + 1
      end
    end
  end
  if #places < 100 then break end
  from = from + 100
end

local answer = { text(now), '' }
for _, entry in ipairs(taken) do
  local id, job = entry[1], entry[2]
  job[CLAIMS] = text(job[CLAIMS] + 1)
  job[ATTEMPTS] = text(math.min(job[ATTEMPTS] + 1, 4294967295))
  forget(id, find(id))
  job[WORKER], job[NUMBER], job[READY] = worker, job[CLAIMS], later(now, hold)
  put(id, job)
  answer[#answer + 1] = id
  answer[#answer + 1] = table.concat(job, '\0')
end
-- When the next one becomes ready.
from = 0
while answer[2] == '' do
  local ids = redis.call('ZRANGEBYSCORE', KEYS[Q + 2], '(' .. text(now), '+inf', 'LIMIT', from, 100)
  for _, id in ipairs(ids) do
    local job = find(id)
    if wants(job) then
      answer[2] = job[READY]
      break
    end
  end
  if #ids < 100 then break end
  from = from + 100
end
return answer
