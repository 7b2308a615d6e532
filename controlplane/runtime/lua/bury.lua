-- Remove a job that is over according to the database, though its log here ends earlier; late events are refused.
-- KEYS: live jobs, state, engine, the job's other keys, then agents' hashes of processes.
-- ARGV: held value, job, seconds until the tombstone expires, number of keys of the job, job's fields of the hashes...
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
local own = tonumber(ARGV[4])
for i = 2, own do
  redis.call('DEL', KEYS[i])
end
for i = own + 1, #KEYS do
  for j = 5, #ARGV do
    redis.call('HDEL', KEYS[i], ARGV[j])
  end
  redis.call('PUBLISH', (string.gsub(KEYS[i], ':processes$', ':moved')), '')
end
redis.call('HSET', KEYS[3], 'over', 1)
redis.call('EXPIRE', KEYS[3], ARGV[3])
redis.call('SREM', KEYS[1], ARGV[2])
return 1
