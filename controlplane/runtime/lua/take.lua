-- Take the lease of an idle or queued job, with the next fencing token.
-- KEYS: state, token, engine. ARGV: ms for which held holds, a unique part of this holder's value,
--       the run id of this Redis, or '' to read it here.
-- Returns {token, cursor, now in ms, incarnation, whether the log was written or recovered in this run, the value},
-- or false if another process holds it. Without a log the cursor is ''.
local state = redis.call('GET', KEYS[1])
if state and state ~= 'queued' then
  return false
end
local known = redis.call('HMGET', KEYS[3], 'cursor', 'incarnation', 'run_id')
local run_id = ARGV[3]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
local token = redis.call('INCR', KEYS[2])
local value = 'held:' .. token .. ':' .. ARGV[2] .. ':' .. run_id
redis.call('SET', KEYS[1], value, 'PX', ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return {token, known[1] or '', now, tonumber(known[2] or 0), known[3] == run_id and 1 or 0, value}
