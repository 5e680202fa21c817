-- Describe a state partition, in one atomic read.
-- KEYS: meta, idle
-- Returns the number of conversations, the server's clock in milliseconds, then all of meta. It
-- writes nothing.

local NEEDED = {'HGETALL', 'TYPE', 'ZCARD'}
local WITHOUT_KEY = {'TIME'}

if #KEYS ~= 2 or #ARGV ~= 0 then
  return redis.error_reply('ERR describe: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1]) or denied(WITHOUT_KEY)
if refusal then
  return refusal
end

local now = redis.call('TIME')
local held = 0
if redis.call('TYPE', KEYS[2]).ok == 'zset' then
  held = redis.call('ZCARD', KEYS[2])
end
local reply = {held, string.format('%d%03d', now[1], math.floor(now[2] / 1000))}
for _, word in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = word
end
return reply
