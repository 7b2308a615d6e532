-- Begin a job's log with its first event, exactly once; the one that begins it enqueues.
-- KEYS: events, state, engine, live jobs. ARGV: ms for which queued holds, event, job,
--       the run id of this Redis, or '' for it to say itself.
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
local run_id = ARGV[4]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
redis.call('XADD', KEYS[1], '*', 'e', ARGV[2])
redis.call('HSET', KEYS[3], 'cursor', '0-0', 'deadline', '', 'sequence', 0, 'over', 0, 'incarnation', 0, 'run_id', run_id)
redis.call('SADD', KEYS[4], ARGV[3])
redis.call('SET', KEYS[2], 'queued', 'PX', ARGV[1])
return 1
