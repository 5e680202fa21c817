-- Become the owner of a state partition.
-- KEYS: meta
-- ARGV: token; then the fields and values of a new partition's meta
-- Returns 'begun' (new) or 'taken', then all of meta; {'wiping'} during a wipe; {'frozen', number} if
-- that generation has replaced this one. All checks come before the first write.

local NEEDED = {'HSET', 'HDEL', 'HGET', 'HMGET', 'HGETALL', 'ZADD', 'ZREM', 'UNLINK', 'TYPE'}
local WITHOUT_KEY = {'TIME'}

if #KEYS ~= 1 or #ARGV < 1 or #ARGV % 2 == 0 or ARGV[1] == '' then
  return redis.error_reply('ERR claim: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1]) or denied(WITHOUT_KEY)
if refusal then
  return refusal
end

local held = redis.call('HMGET', KEYS[1], 'frozen', 'wiping', 'token')
if held[1] then
  return {'frozen', held[1]}
end
if held[2] then
  return {'wiping'}
end
local reply = {'taken'}
if not held[3] then
  reply[1] = 'begun'
  for i = 2, #ARGV, 1000 do
    redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
  end
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
for _, word in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = word
end
return reply
