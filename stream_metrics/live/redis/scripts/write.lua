-- Write a batch atomically.
-- KEYS: meta, idle, then hashes, which the changes below reference by number
-- ARGV: token, batch id, number of topics,
--       for each topic: name, expected offset, new offset or '', the last record before it;
--       number of fields to set in meta, their names; then changes until the end:
--       S key n (field value)*n    set fields          R key n field*n        remove fields
--       X key                      remove the key      A n (ms member)*n      last records, the
--       Z n member*n               forget last records                        later one stays
-- Returns {'written'}, {'fenced'} or {'moved', topic, offset, ...}.
-- A script is not rolled back: every argument and every key's type is checked before a write.

local CHUNK = 4000 -- below Lua's limit for unpack; even, because fields and values are pairs

local function bad(what)
  return redis.error_reply('ERR write: ' .. what)
end

local function count(i)
  local n = tonumber(ARGV[i])
  if n and n >= 0 and n == math.floor(n) then
    return n
  end
end

-- the number of arguments behind each change's count, for one of its items
local WIDTH = {S = 2, R = 1, A = 2, Z = 1}
local COMMAND = {S = 'HSET', R = 'HDEL', A = 'ZADD', Z = 'ZREM'}

-- checks that the caller owns the partition and expects the stored offsets

if #KEYS < 2 then
  return bad('keys are missing')
end
local topics = count(3)
if not topics or 4 + 4 * topics > #ARGV then
  return bad('wrong number of topics')
end
local stored = redis.call('HMGET', KEYS[1], 'token', 'batch')
if stored[1] ~= ARGV[1] then
  return {'fenced'}
end
local applied, expected = stored[2] == ARGV[2], true
for i = 4, 3 + 4 * topics, 4 do
  local offset = redis.call('HGET', KEYS[1], 'o:' .. ARGV[i])
  expected = expected and offset == ARGV[i + 1]
  applied = applied and (ARGV[i + 2] == '' or offset == ARGV[i + 2])
end
if applied then
  return {'written'}
end
if not expected then
  local reply = {'moved'}
  local meta = redis.call('HGETALL', KEYS[1])
  for i = 1, #meta, 2 do
    if string.sub(meta[i], 1, 2) == 'o:' then
      reply[#reply + 1] = string.sub(meta[i], 3)
      reply[#reply + 1] = meta[i + 1]
    end
  end
  return reply
end

-- checks of the arguments

local positions = {}
for i = 4, 3 + 4 * topics, 4 do
  if ARGV[i + 2] ~= '' then
    if not string.match(ARGV[i + 2], '^%d+$') then
      return bad('an offset is no number')
    end
    positions[#positions + 1] = 'o:' .. ARGV[i]
    positions[#positions + 1] = ARGV[i + 2]
    positions[#positions + 1] = 'l:' .. ARGV[i]
    positions[#positions + 1] = ARGV[i + 3]
  end
end
local notes = 4 + 4 * topics
local n = count(notes)
if not n or notes + n > #ARGV then
  return bad('wrong number of notes')
end
for i = notes + 1, notes + n do
  positions[#positions + 1] = ARGV[i]
  positions[#positions + 1] = '1'
end
local first = notes + n + 1

local changes = {} -- command, key, first argument, last argument; flat
local i = first
while i <= #ARGV do
  local op = ARGV[i]
  local key = KEYS[2]
  if op == 'S' or op == 'R' or op == 'X' then
    i = i + 1
    local number = count(i)
    if not number or number < 3 or number > #KEYS then
      return bad('a change has no key')
    end
    key = KEYS[number]
  end
  if op == 'X' then
    changes[#changes + 1] = {'UNLINK', key}
    i = i + 1
  else
    local width = WIDTH[op]
    local items = width and count(i + 1)
    if not items or items < 1 or i + 1 + items * width > #ARGV then
      return bad('a change is not understood')
    end
    local from, to = i + 2, i + 1 + items * width
    if op == 'A' then
      for score = from, to, 2 do
        if not string.match(ARGV[score], '^-?%d+$') then
          return bad('a last record has no time')
        end
      end
    end
    changes[#changes + 1] = {COMMAND[op], key, from, to}
    i = to + 1
  end
end

for k = 2, #KEYS do
  local kind = redis.call('TYPE', KEYS[k]).ok
  if kind ~= 'none' and kind ~= (k == 2 and 'zset' or 'hash') then
    return redis.error_reply('WRONGTYPE write: a key holds another type') -- as Redis itself says
  end
end

-- the writes

for _, change in ipairs(changes) do
  local command, key, from, to = change[1], change[2], change[3], change[4]
  if from then
    for at = from, to, CHUNK do
      local till = math.min(at + CHUNK - 1, to)
      if command == 'ZADD' then
        redis.call(command, key, 'GT', unpack(ARGV, at, till))
      else
        redis.call(command, key, unpack(ARGV, at, till))
      end
    end
  else
    redis.call(command, key)
  end
end
for at = 1, #positions, CHUNK do
  redis.call('HSET', KEYS[1], unpack(positions, at, math.min(at + CHUNK - 1, #positions)))
end
redis.call('HSET', KEYS[1], 'batch', ARGV[2])
return {'written'}
