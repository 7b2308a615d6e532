-- Remove a finished job that the database has completely; a tombstone refuses late events with that reason.
-- KEYS: live jobs, state, engine, events, commands, then the job's other keys.
-- ARGV: job, database cursor of events, of commands, seconds until the tombstone expires. Returns 1 if removed.
if redis.call('HGET', KEYS[3], 'over') ~= '1' or redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
for i = 4, 5 do
  local last = redis.call('XREVRANGE', KEYS[i], '+', '-', 'COUNT', 1)
  if last[1] and last[1][1] ~= ARGV[i - 2] then
    return 0
  end
end
for i = 3, #KEYS do
  redis.call('DEL', KEYS[i])
end
redis.call('HSET', KEYS[3], 'over', 1)
redis.call('EXPIRE', KEYS[3], ARGV[4])
redis.call('SREM', KEYS[1], ARGV[1])
return 1
