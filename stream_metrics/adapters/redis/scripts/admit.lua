-- Admit names to a registry while there is room.
-- KEYS: registry
-- ARGV: limit, number of configured names, the configured names, the new names
-- Returns the configured and the admitted names, the limit in all.

local limit, configured = tonumber(ARGV[1]), tonumber(ARGV[2])
if #KEYS ~= 1 or not limit or not configured or configured < 0 or configured > #ARGV - 2 then
  return redis.error_reply('ERR admit: wrong arguments')
end
local refusal = denied({'ZRANGE'}, KEYS[1])
if refusal then
  return refusal
end

local chosen, has = {}, {}
local function choose(name)
  if has[name] then
    return false
  end
  has[name] = true
  chosen[#chosen + 1] = name
  return true
end

for i = 3, 2 + configured do
  choose(ARGV[i])
end
local held = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
local last = tonumber(held[#held]) or 0
for i = 1, #held, 2 do
  if #chosen < limit then
    choose(held[i])
  end
end
for i = 3 + configured, #ARGV do
  if #chosen < limit and choose(ARGV[i]) then
    last = last + 1
    redis.call('ZADD', KEYS[1], last, ARGV[i])
  end
end
return chosen
