-- Whether every live job's log was begun or recovered in this Redis' present run. KEYS: marker.
-- ARGV: the run id of this Redis, or '' for it to say itself; 'mark' to say so from now on, or 'ask'.
local run_id = ARGV[1]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
if ARGV[2] == 'mark' then
  redis.call('SET', KEYS[1], run_id)
end
return redis.call('GET', KEYS[1]) == run_id and 1 or 0
