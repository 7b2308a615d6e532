-- Forget the stream of log lines of a job that is over, unless something came since.
-- KEYS: lines, count of lines, jobs that have lines, live jobs. ARGV: job.
if redis.call('XLEN', KEYS[1]) > 0 or redis.call('SISMEMBER', KEYS[4], ARGV[1]) == 1 then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('SREM', KEYS[3], ARGV[1])
return 1
