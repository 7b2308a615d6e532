-- Append that time has passed, once the deadline has come by Redis' own clock and nothing else is unread.
-- KEYS: state, events. ARGV: held value, deadline, event, cursor.
-- Returns ms until the deadline (0: appended), or -1 where the token is stale.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
local time = redis.call('TIME')
local left = tonumber(ARGV[2]) - (time[1] * 1000 + math.floor(time[2] / 1000))
if left > 0 then
  return left
end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if not last[1] or last[1][1] == ARGV[4] then
  redis.call('XADD', KEYS[2], '*', 'e', ARGV[3])
end
return 0
