-- Append events and flip idle to queued, in one step; the caller enqueues if and only if it flipped.
-- KEYS: events, state, engine. ARGV: ms for which queued holds, event...
-- Returns {flipped, id of the last event, length of the log}; {-1} where there is no log, {-2} where the job is over.
local over = redis.call('HGET', KEYS[3], 'over')
if not over then
  return {-1}
end
if over == '1' then
  return {-2}
end
local id
for i = 2, #ARGV do
  id = redis.call('XADD', KEYS[1], '*', 'e', ARGV[i])
end
local flipped = redis.call('SET', KEYS[2], 'queued', 'PX', ARGV[1], 'NX')
return {flipped and 1 or 0, id, redis.call('XLEN', KEYS[1])}
