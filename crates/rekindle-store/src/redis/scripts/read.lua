-- KEYS: session, frames or parts of the base, marks.
-- ARGV: time, branch, from, through, where a frame that begins by `through` and ends later may end, marks wanted,
-- whether newest first, frames at most, bytes after which a page ends.
-- Gives nothing if there is no such branch, else whether there is more, then last record, first record, bytes and
-- marks of each frame: no bytes if the index names one that is gone, and no marks if they were not looked up.
if redis.call('HEXISTS', KEYS[1], 'h:' .. ARGV[2]) == 0 then return {} end
local from, through, beyond = ARGV[3], ARGV[4], ARGV[5]
local wanted, newest, limit, most = tonumber(ARGV[6]), ARGV[7] == '1', tonumber(ARGV[8]), tonumber(ARGV[9])
local CHUNK = 16
local page, bytes = { 0 }, 0

local function padded(number) return string.rep('0', 20 - #number) .. number end

-- Whether the page goes on.
local function add(last, first, frame, marks)
  if #page >= 1 + 4 * limit or bytes >= most then
    page[1] = 1
    return false
  end
  page[#page + 1] = last
  page[#page + 1] = first
  page[#page + 1] = frame
  page[#page + 1] = marks
  bytes = bytes + #frame
  return true
end

local function take(entry)
  local record, frame = entry[1], entry[2]
  return add(string.sub(record, 1, string.find(record, '-', 1, true) - 1), frame[1], frame[2], '')
end

-- The frame that holds `through` and ends later, if there is one. Whether the page goes on.
local function take_beyond()
  local entry = redis.call('XRANGE', KEYS[2], beyond, '+', 'COUNT', 1)[1]
  if entry and padded(entry[2][1]) <= padded(through) then return take(entry) end
  return true
end

local function take_range()
  local command, first, last = 'XRANGE', from, through
  if newest then command, first, last = 'XREVRANGE', through, from end
  while true do
    local entries = redis.call(command, KEYS[2], first, last, 'COUNT', CHUNK)
    for _, entry in ipairs(entries) do
      if not take(entry) then return false end
    end
    if #entries < CHUNK then return true end
    first = '(' .. entries[#entries][1]
  end
end

-- Whether the page goes on.
local function take_marked(entry)
  if padded(through) < string.sub(entry, 21, 40) then return newest end
  local marks = string.sub(entry, 41)
  -- Marks that are no marks are all marks: rather found too often than not at all.
  if bit.band(tonumber(marks) or 255, wanted) == 0 then return true end
  local last = string.gsub(string.sub(entry, 1, 20), '^0+', '')
  local first = string.gsub(string.sub(entry, 21, 40), '^0+', '')
  local frame = redis.call('XRANGE', KEYS[2], last, last)[1]
  return add(last, first, frame and frame[2][2] or '', marks)
end

local function take_all_marked()
  local lowest = '[' .. padded(from)
  local highest = '+'
  if newest then
    -- At most one frame with these marks ends later and begins by then.
    local entry = redis.call('ZRANGE', KEYS[3], '[' .. padded(beyond), '+', 'BYLEX', 'LIMIT', 0, 1)[1]
    if entry and not take_marked(entry) then return end
    highest = '(' .. padded(through) .. ':'
  end
  while true do
    local entries
    if newest then
      entries = redis.call('ZRANGE', KEYS[3], highest, lowest, 'BYLEX', 'REV', 'LIMIT', 0, CHUNK)
    else
      entries = redis.call('ZRANGE', KEYS[3], lowest, highest, 'BYLEX', 'LIMIT', 0, CHUNK)
    end
    for _, entry in ipairs(entries) do
      if not take_marked(entry) then return end
    end
    if #entries < CHUNK then return end
    if newest then highest = '(' .. entries[#entries] else lowest = '(' .. entries[#entries] end
  end
end

if wanted ~= 0 then
  take_all_marked()
elseif newest then
  if take_beyond() then take_range() end
elseif take_range() then
  take_beyond()
end
return page
