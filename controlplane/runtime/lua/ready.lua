-- Whether every live job's log was begun or recovered in this Redis' present life. KEYS: marker.
-- ARGV: the life of this Redis, or '' for it to say itself; 'mark' to say so from now on, or 'ask'.
local life = ARGV[1]
if life == '' then
  life = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
if ARGV[2] == 'mark' then
  redis.call('SET', KEYS[1], life)
end
return redis.call('GET', KEYS[1]) == life and 1 or 0
