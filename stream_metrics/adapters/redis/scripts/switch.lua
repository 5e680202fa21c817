-- Drafts take the places of state partitions.
-- KEYS: layout
-- ARGV: mark of who holds the namespace, number of drafts, their numbers; then the numbers of the
--       partitions that retire
-- Returns {'switched'}, {'held', command} if somebody else holds it, {'taken', number}, or
-- {'others', number, ...} with the drafts that there are. Repeated, it changes nothing. The checks
-- stand before the first write.

local count = tonumber(ARGV[2])
if #KEYS ~= 1 or not count or ARGV[1] == '' or count > #ARGV - 2 then
  return redis.error_reply('ERR switch: wrong arguments')
end

local held = redis.call('HGET', KEYS[1], 'held') or ' '
local mark, command = string.match(held, '^(%S*) (.*)$')
if mark ~= ARGV[1] then
  return {'held', command}
end
if redis.call('HGET', KEYS[1], 'switched') == mark then
  return {'switched'}
end

local drafted, retired = {}, {}
for i = 3, 2 + count do
  drafted[ARGV[i]] = true
end
for i = 3 + count, #ARGV do
  retired[ARGV[i]] = true
end
local layout, tags, drafts, others = redis.call('HGETALL', KEYS[1]), {}, {}, {'others'}
for i = 1, #layout, 2 do
  local number = string.match(layout[i], '^draft:(%d+)$')
  if number then
    drafts[number] = layout[i + 1]
    others[#others + 1] = number
  elseif string.match(layout[i], '^%d+$') then
    tags[layout[i]] = layout[i + 1]
  end
end
for number in pairs(drafted) do
  if not drafts[number] then
    return others
  end
end
for number in pairs(drafts) do
  if not drafted[number] then
    return others
  end
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
redis.call('HSET', KEYS[1], 'switched', mark)
return {'switched'}
