-- Jobs of a namespace, from key `Q` on: `jobs` (id to job), `ids` (in order), `due` (by the time they become
-- ready), `ready` (in the order they are taken), `claimed` (ids), `pending` (inboxes that are being
-- written, in a cluster, each write by itself), `workers`. A job is thirteen texts with a zero byte between them.
local QUEUE, PRIORITY, AGENT, KEY, MOST, READY, WORKER, NUMBER = 1, 2, 3, 4, 5, 7, 8, 9
local CLAIMS, ATTEMPTS, WAKES = 10, 11, 12
local function jobs_key() return KEYS[Q] end
local function parts(text)
  local list, from = {}, 1
  for index = 1, 12 do
    local to = string.find(text, '\0', from, true)
    list[index] = string.sub(text, from, to - 1)
    from = to + 1
  end
  list[13] = string.sub(text, from)
  return list
end
local function find(id)
  local job = redis.call('HGET', jobs_key(), id)
  return job and parts(job)
end
-- Higher priority first, then what was ready first.
local function place(id, job)
  local priority = string.format('%010.0f', 2147483647 - tonumber(job[PRIORITY]))
  return priority .. string.rep('0', 20 - #job[READY]) .. job[READY] .. id
end
local function forget(id, job)
  if job[READY] ~= '' then
    redis.call('ZREM', KEYS[Q + 2], id)
    redis.call('ZREM', KEYS[Q + 3], place(id, job))
  end
  if job[WORKER] ~= '' then redis.call('SREM', KEYS[Q + 4], id) end
end
local function discard(id)
  local job = find(id)
  if not job then return 0 end
  forget(id, job)
  redis.call('HDEL', jobs_key(), id)
  redis.call('ZREM', KEYS[Q + 1], id)
  return 1
end
local function put(id, job)
  local before = find(id)
  if before then forget(id, before) end
  redis.call('HSET', jobs_key(), id, table.concat(job, '\0'))
  redis.call('ZADD', KEYS[Q + 1], 0, id)
  if job[READY] ~= '' then redis.call('ZADD', KEYS[Q + 2], job[READY], id) end
  if job[WORKER] ~= '' then redis.call('SADD', KEYS[Q + 4], id) end
end
local function held(job, now)
  return job[WORKER] ~= '' and job[READY] ~= '' and tonumber(job[READY]) > now
end
-- Something arrived for a session: whether its job is ready now.
local function wake(id, now)
  local job = find(id)
  if not job then return false end
  job[WAKES] = text(job[WAKES] + 1)
  local free = not held(job, now)
  if free and (job[READY] == '' or tonumber(job[READY]) > now) then job[READY] = text(now) end
  put(id, job)
  return free
end
