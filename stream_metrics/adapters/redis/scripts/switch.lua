-- Drafts take the places of state partitions.
-- KEYS: layout
-- ARGV: mark of who holds the namespace, then the numbers of the partitions that retire
-- Returns {'switched'}, {'held', command} if somebody else holds it, or {'taken', number}. Without
-- drafts nothing is changed: the call is repeated. The checks stand before the first write.

if #KEYS ~= 1 or #ARGV < 1 or ARGV[1] == '' then
  return redis.error_reply('ERR switch: wrong arguments')
end

local held = redis.call('HGET', KEYS[1], 'held') or ' '
local mark, command = string.match(held, '^(%S*) (.*)$')
if mark ~= ARGV[1] then
  return {'held', command}
end

local retired = {}
for i = 2, #ARGV do
  retired[ARGV[i]] = true
end
local layout, tags, drafts = redis.call('HGETALL', KEYS[1]), {}, {}
for i = 1, #layout, 2 do
  local number = string.match(layout[i], '^draft:(%d+)$')
  if number then
    drafts[number] = layout[i + 1]
  elseif string.match(layout[i], '^%d+$') then
    tags[layout[i]] = layout[i + 1]
  end
end
if next(drafts) == nil then
  return {'switched'}
end
for number in pairs(drafts) do
  if tags[number] and not retired[number] then
    return {'taken', number}
  end
end

for number in pairs(retired) do
  if tags[number] then
    redis.call('HDEL', KEYS[1], number)
    redis.call('HSET', KEYS[1], 'retired:' .. tags[number], tags[number])
  end
end
for number, tag in pairs(drafts) do
  redis.call('HDEL', KEYS[1], 'draft:' .. number)
  redis.call('HSET', KEYS[1], number, tag)
end
return {'switched'}
