-- The next page of a sorted set after a given member, also if members were added, moved or removed.
-- KEYS: sorted set
-- ARGV: page size; then score and member of the last one read, or nothing for the first page
-- Returns members and scores, in order.

local NEEDED = {'ZCOUNT', 'ZRANGE'}

local limit = tonumber(ARGV[1])
if #KEYS ~= 1 or not limit or limit < 1 or (#ARGV ~= 1 and #ARGV ~= 3) then
  return redis.error_reply('ERR page: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

-- Compares bytes, as sorted sets do; Lua's own comparison of strings depends on the locale.
local function is_behind(a, b)
  for i = 1, math.min(#a, #b) do
    local one, other = string.byte(a, i), string.byte(b, i)
    if one ~= other then
      return one > other
    end
  end
  return #a > #b
end

local first = 0
if #ARGV == 3 then
  -- between the first and the last member of this score
  first = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[2])
  local last = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[2])
  while first < last do
    local middle = math.floor((first + last) / 2)
    if is_behind(redis.call('ZRANGE', KEYS[1], middle, middle)[1], ARGV[3]) then
      last = middle
    else
      first = middle + 1
    end
  end
end
return redis.call('ZRANGE', KEYS[1], first, first + limit - 1, 'WITHSCORES')
