-- The next members of a sorted set behind a place in it, whatever was added, moved or removed since.
-- KEYS: sorted set
-- ARGV: how many; then score and member of the place, or nothing to begin with the first
-- Returns member and score of each, in their order.

local NEEDED = {'ZCOUNT', 'ZRANGE'}

local limit = tonumber(ARGV[1])
if #KEYS ~= 1 or not limit or limit < 1 or (#ARGV ~= 1 and #ARGV ~= 3) then
  return redis.error_reply('ERR page: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

-- in the order of sorted sets, which goes by bytes; that of Lua's strings goes by the locale
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
