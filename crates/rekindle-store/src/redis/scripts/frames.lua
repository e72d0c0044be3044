-- Counts the frames up to a record, and their bytes.
local function measure(key, last)
  local frames, bytes, from = 0, 0, '-'
  while true do
    local entries = redis.call('XRANGE', key, from, last, 'COUNT', 64)
    for _, entry in ipairs(entries) do
      frames = frames + 1
      bytes = bytes + #entry[2][2]
    end
    if #entries < 64 then return frames, bytes end
    from = '(' .. entries[#entries][1]
  end
end
-- Arguments one after the other.
local at = 1
local function argument()
  at = at + 1
  return ARGV[at]
end
local function write_fields(session)
  for _ = 1, tonumber(argument()) do
    local field = argument()
    redis.call('HSET', session, field, argument())
  end
end
-- Writes the parts of a base: for each, last record, first record, bytes.
local function write_parts(key)
  for _ = 1, tonumber(argument()) do
    local last, first = argument(), argument()
    redis.call('XADD', key, last .. '-0', first, argument())
  end
end
