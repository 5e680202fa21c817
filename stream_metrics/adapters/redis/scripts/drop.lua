-- Forget a draft or a retired partition of which nothing is left.
-- KEYS: layout
-- ARGV: mark of who holds the namespace, field, the tag that it had
-- Returns {'dropped'}, also if the field has another tag by now, or {'held', command} if somebody
-- else holds it.

if #KEYS ~= 1 or #ARGV ~= 3 or ARGV[1] == '' then
  return redis.error_reply('ERR drop: wrong arguments')
end

local held = redis.call('HGET', KEYS[1], 'held') or ' '
local mark, command = string.match(held, '^(%S*) (.*)$')
if mark ~= ARGV[1] then
  return {'held', command}
end
if redis.call('HGET', KEYS[1], ARGV[2]) == ARGV[3] then
  redis.call('HDEL', KEYS[1], ARGV[2])
end
return {'dropped'}
