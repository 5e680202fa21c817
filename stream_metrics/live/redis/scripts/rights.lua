-- Which commands the user may not run on which keys.
-- ARGV: pairs of command and key
-- Returns the numbers of the denied pairs, from 1; {0} if the server cannot tell (before Redis 7).
-- It reads and writes nothing.

if #ARGV % 2 ~= 0 then
  return redis.error_reply('ERR rights: wrong arguments')
end
if not redis.acl_check_cmd then
  return {0}
end

local denied = {}
for i = 1, #ARGV, 2 do
  if not redis.acl_check_cmd(ARGV[i], ARGV[i + 1]) then
    denied[#denied + 1] = (i + 1) / 2
  end
end
return denied
