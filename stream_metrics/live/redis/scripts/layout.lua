-- Replace the layout document, unless another client has replaced it meanwhile.
-- KEYS: layout
-- ARGV: the version that must be stored (0: nothing is), the next version, the document
-- Returns 1, or 0 without a write if another version is stored. Rights are checked before a write.

local NEEDED = {'HDEL', 'HGET', 'HSET'}

if #KEYS ~= 1 or #ARGV ~= 3 then
  return redis.error_reply('ERR layout: wrong arguments')
end
local refusal = denied(NEEDED, KEYS[1])
if refusal then
  return refusal
end

if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return 0
end
-- A full Redis denies a script's first write if it needs memory, but no write after one that does
-- not. This one needs none: no field has that name.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'document', ARGV[3])
return 1
