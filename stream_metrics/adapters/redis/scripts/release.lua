-- End a hold.
-- KEYS: layout
-- ARGV: mark of who holds the namespace
-- Returns {'released'}, or {'held', command} if somebody else holds it.

if #KEYS ~= 1 or #ARGV ~= 1 or ARGV[1] == '' then
  return redis.error_reply('ERR release: wrong arguments')
end

local held = redis.call('HGET', KEYS[1], 'held') or ' '
local mark, command = string.match(held, '^(%S*) (.*)$')
if mark ~= ARGV[1] then
  return {'held', command}
end
redis.call('HDEL', KEYS[1], 'held', 'switched')
return {'released'}
