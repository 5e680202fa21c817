-- Take a state partition from its owner until it is let go.
-- KEYS: meta
-- ARGV: mark of who holds the namespace; 'on', or 'off' to let it be claimed again
-- Returns 1 if that is so now, else 0: 'off', and frozen by somebody else. What is not there yet is
-- frozen, too, so that it cannot begin.

if #KEYS ~= 1 or #ARGV ~= 2 or ARGV[1] == '' or (ARGV[2] ~= 'on' and ARGV[2] ~= 'off') then
  return redis.error_reply('ERR freeze: wrong arguments')
end

local held = redis.call('HMGET', KEYS[1], 'frozen', 'token')
if ARGV[2] == 'off' then
  if held[1] ~= ARGV[1] then
    return 0
  end
  redis.call('HDEL', KEYS[1], 'frozen')
  return 1
end
redis.call('HDEL', KEYS[1], '') -- so that a full Redis takes the next write, too: see hold.lua
redis.call('HSET', KEYS[1], 'frozen', ARGV[1])
if held[2] then
  redis.call('HSET', KEYS[1], 'token', ARGV[1])
end
return 1
