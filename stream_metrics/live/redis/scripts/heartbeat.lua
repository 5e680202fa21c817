-- Record a heartbeat of the owner, at the server's time.
-- KEYS: meta
-- ARGV: token, the worker's name, its lag in ms or ''
-- Returns 1, or 0 without a write if the token is not the owner's. The heartbeat contains the token,
-- so that it becomes invalid when another owner claims the partition.

local NEEDED = {'HDEL', 'HGET', 'HSET'}
local WITHOUT_KEY = {'TIME'}

if #KEYS ~= 1 or #ARGV ~= 3 or ARGV[1] == '' then
  return redis.error_reply('ERR heartbeat: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1]) or denied(WITHOUT_KEY)
if refusal then
  return refusal
end

if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
local now = redis.call('TIME')
local ms = string.format('%d%03d', now[1], math.floor(now[2] / 1000))
redis.call('HDEL', KEYS[1], '') -- so that a full Redis takes the next write, too: see layout.lua
redis.call('HSET', KEYS[1], 'beat', ms .. ' ' .. ARGV[3] .. ' ' .. ARGV[1], 'worker', ARGV[2])
return 1
