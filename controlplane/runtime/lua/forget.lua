-- Stop ordering this process instance; an order for another instance stays.
-- KEYS: the agent's processes, the processes that it started. ARGV: field, instance, title among the started.
local running = redis.call('HGET', KEYS[1], ARGV[1])
if running and string.sub(running, 1, #ARGV[2] + 1) == ARGV[2] .. '\0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
redis.call('SREM', KEYS[2], ARGV[3])
return 1
