-- Become the owner of a state partition. If the identity differs by a later schema alone, that is
-- noted: from now on parts may be written by it.
-- KEYS: meta
-- ARGV: token, 'begin' if a new partition may begin here, or ''; then field and value of everything
--       that it begins with
-- Returns 'begun' or 'taken', then all of meta; {'wiping'} while a wipe is not done; {'frozen'} while
-- a command replaces the partition; {'none'} if there is none and none may begin. The checks stand
-- before the first write.

local NEEDED = {'HSET', 'HDEL', 'HGET', 'HMGET', 'HGETALL', 'ZADD', 'ZREM', 'UNLINK', 'TYPE'}
local WITHOUT_KEY = {'TIME'}

if #KEYS ~= 1 or #ARGV < 4 or #ARGV % 2 == 1 or ARGV[1] == '' then
  return redis.error_reply('ERR claim: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1]) or denied(WITHOUT_KEY)
if refusal then
  return refusal
end

if redis.call('HGET', KEYS[1], 'frozen') then
  return {'frozen'}
end
if redis.call('HGET', KEYS[1], 'wiping') then
  return {'wiping'}
end
local begin = {}
for i = 3, #ARGV, 2 do
  begin[ARGV[i]] = ARGV[i + 1]
end
local reply = {'taken'}
local held = redis.call('HMGET', KEYS[1], 'i:group', 'i:fingerprint', 'i:counts', 'i:schema')
if held[1] then
  local same = held[1] == begin['i:group'] and held[2] == begin['i:fingerprint']
    and held[3] == begin['i:counts']
  local schema, stored = tonumber(begin['i:schema']), tonumber(held[4])
  if same and schema and stored and schema > stored then
    redis.call('HSET', KEYS[1], 'i:schema', begin['i:schema'])
  end
elseif ARGV[2] ~= 'begin' then
  return {'none'}
else
  reply[1] = 'begun'
  for i = 3, #ARGV, 1000 do
    redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
  end
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
for _, word in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = word
end
return reply
