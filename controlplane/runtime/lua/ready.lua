-- Whether every live job's log was started or recovered in this Redis' present run. KEYS: marker.
-- ARGV: the run id of this Redis, or '' to read it here; 'mark' to record that, or 'ask' to check it.
local run_id = ARGV[1]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
if ARGV[2] == 'mark' then
  redis.call('SET', KEYS[1], run_id)
end
return redis.call('GET', KEYS[1]) == run_id and 1 or 0
