-- Prevent a state partition from being owned again, because another generation has replaced it.
-- KEYS: meta
-- ARGV: number of that generation, a token that no worker has; or '0', '' to remove the mark from a
--       partition that has nothing else left
-- Returns 1. A partition that does not exist is frozen too, so that it cannot begin.

local NEEDED = {'HDEL', 'HEXISTS', 'HGETALL', 'HSET', 'TYPE', 'UNLINK'}

if #KEYS ~= 1 or #ARGV ~= 2 or not tonumber(ARGV[1]) then
  return redis.error_reply('ERR freeze: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

if ARGV[1] == '0' then
  if #redis.call('HGETALL', KEYS[1]) == 2 then -- a name and its value
    redis.call('HDEL', KEYS[1], 'frozen')
  end
  return 1
end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  -- Nobody owns a partition by a value of another type, which does not list the windows either.
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'unlisted', '1')
end
redis.call('HDEL', KEYS[1], '') -- so that a full Redis takes the next write, too: see layout.lua
redis.call('HSET', KEYS[1], 'frozen', ARGV[1])
if redis.call('HEXISTS', KEYS[1], 'token') == 1 then
  redis.call('HSET', KEYS[1], 'token', ARGV[2])
end
return 1
