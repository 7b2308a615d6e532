-- Take the lease of an idle or queued job, with the next fencing token.
-- KEYS: state, token, engine. ARGV: ms for which held holds.
-- Returns {token, cursor, deadline, now in ms}, or false where somebody holds it or there is no log.
local state = redis.call('GET', KEYS[1])
if state and state ~= 'queued' then
  return false
end
local known = redis.call('HMGET', KEYS[3], 'cursor', 'deadline')
if not known[1] then
  redis.call('DEL', KEYS[1])
  return false
end
local token = redis.call('INCR', KEYS[2])
redis.call('SET', KEYS[1], 'held:' .. token, 'PX', ARGV[1])
local time = redis.call('TIME')
return {token, known[1], known[2], time[1] * 1000 + math.floor(time[2] / 1000)}
