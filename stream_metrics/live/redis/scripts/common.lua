-- Shared by all scripts, which are appended to this file.

-- An error reply if the user may not run one of these commands, on the key if one is given; else nil.
-- Servers before 7 cannot tell; there, the command itself fails.
local function denied(commands, ...)
  for _, command in ipairs(redis.acl_check_cmd and commands or {}) do
    if not redis.acl_check_cmd(command, ...) then
      return redis.error_reply('NOPERM this user may not run ' .. command)
    end
  end
end

