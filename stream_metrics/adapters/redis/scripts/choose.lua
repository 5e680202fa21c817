-- The hash tag of a state partition, or of a draft; whoever comes first chooses it.
-- KEYS: layout
-- ARGV: field, tag, mark of who holds the namespace or ''
-- Returns {'tag', tag}, or {'held', command} unless the hold is the caller's.

if #KEYS ~= 1 or #ARGV ~= 3 or ARGV[1] == '' or ARGV[2] == '' then
  return redis.error_reply('ERR choose: wrong arguments')
end

local held = redis.call('HGET', KEYS[1], 'held') or ' '
local mark, command = string.match(held, '^(%S*) (.*)$')
if mark ~= ARGV[3] then
  return {'held', command}
end
local tag = redis.call('HGET', KEYS[1], ARGV[1])
if not tag then
  tag = ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], tag)
end
return {'tag', tag}
