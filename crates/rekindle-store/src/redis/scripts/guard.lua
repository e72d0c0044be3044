-- Before every script. The first argument is the time, if this machine tells it; the last one is the
-- store that the handle knows, and the last key is where it stands. A cluster keeps that in another
-- slot: there it is empty.
if ARGV[#ARGV] ~= '' and redis.call('GET', KEYS[#KEYS]) ~= ARGV[#ARGV] then
  return redis.error_reply('IDENTITY the store is not the one this handle knows')
end
local function clock()
  if ARGV[1] ~= '' then return tonumber(ARGV[1]) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
-- Numbers are doubles here, exact up to 2^53: later times are as good as never.
local function text(number)
  if number >= 9000000000000000 then return '9223372036854775807' end
  return string.format('%.0f', number)
end
-- The time a while from now: said by whoever tells the time, else counted from it.
local function later(now, duration)
  if ARGV[1] ~= '' then return duration end
  return text(now + tonumber(duration))
end
