-- One step of deleting a state partition.
-- KEYS: meta, idle, then what to delete in this step
-- ARGV: token that must be the owner's, or ''; mark; then the members to remove from idle, or, if
--       idle or meta had another type of value, anything while keys are left
-- Returns {'begun'}, {'fenced'}, {'wiping'} or {'wiped'}; {'frozen', number} to a caller with a
-- token, if that generation has replaced this one. The first step sets the mark and removes from meta
-- everything but the window names and the marks frozen and unlisted; later steps must give the same mark. The last
-- step, which has no members and finds idle empty, keeps only the frozen mark. Rights are checked
-- before the first write.

local NEEDED = {'HDEL', 'HGETALL', 'HMGET', 'HSET', 'TYPE', 'UNLINK', 'ZREM'}

if #KEYS < 2 or #ARGV < 2 or ARGV[2] == '' then
  return redis.error_reply('ERR wipe: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

local held = redis.call('HMGET', KEYS[1], 'token', 'wiping', 'frozen')
if ARGV[1] ~= '' and held[3] then
  return {'frozen', held[3]}
end
if not held[2] then
  if #KEYS > 2 or #ARGV > 2 then
    return {'wiping'} -- another client has finished meanwhile
  end
  local meta = redis.call('HGETALL', KEYS[1])
  if #meta == (held[3] and 2 or 0) then
    return {'wiped'}
  end
  if ARGV[1] ~= '' and held[1] ~= ARGV[1] then
    return {'fenced'}
  end
  redis.call('HDEL', KEYS[1], '') -- so that a full Redis takes the next write, too: see layout.lua
  redis.call('HSET', KEYS[1], 'wiping', ARGV[2])
  for i = 1, #meta, 2 do
    if string.sub(meta[i], 1, 2) ~= 'w:' and meta[i] ~= 'frozen' and meta[i] ~= 'unlisted' then
      redis.call('HDEL', KEYS[1], meta[i])
    end
  end
  return {'begun'}
end
if held[2] ~= ARGV[2] then
  return {'wiping'}
end

for i = 3, #KEYS, 1000 do
  redis.call('UNLINK', unpack(KEYS, i, math.min(i + 999, #KEYS)))
end
if redis.call('TYPE', KEYS[2]).ok == 'zset' then
  for i = 3, #ARGV, 1000 do
    redis.call('ZREM', KEYS[2], unpack(ARGV, i, math.min(i + 999, #ARGV)))
  end
end
if #ARGV > 2 or redis.call('TYPE', KEYS[2]).ok == 'zset' then
  return {'wiping'}
end
redis.call('UNLINK', KEYS[1], KEYS[2])
if held[3] then
  redis.call('HSET', KEYS[1], 'frozen', held[3])
end
return {'wiped'}
