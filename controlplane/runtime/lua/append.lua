-- Append events and flip idle to queued, in one step; the caller enqueues if and only if it flipped.
-- KEYS: events, state, engine. ARGV: ms for which queued holds, the run id of the Redis in which the log must have been begun
-- or recovered ('': any), event...
-- Returns {flipped, id of the last event, length of the log}; {-1} where there is no such log, {-2} where the job is over.
local known = redis.call('HMGET', KEYS[3], 'over', 'run_id')
if known[1] == '1' then
  return {-2}
end
if not known[1] or (ARGV[2] ~= '' and ARGV[2] ~= known[2]) then
  return {-1}
end
local id
for i = 3, #ARGV do
  id = redis.call('XADD', KEYS[1], '*', 'e', ARGV[i])
end
local flipped = redis.call('SET', KEYS[2], 'queued', 'PX', ARGV[1], 'NX')
return {flipped and 1 or 0, id, redis.call('XLEN', KEYS[1])}
