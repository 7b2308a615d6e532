-- Release the lease. Refuses to go idle if the log has entries after the cursor, which would stay unread.
-- KEYS: state, events. ARGV: held value, cursor, 'idle' or 'queued', ms for which queued holds.
-- Returns 1, 0 if refused, -1 if the token is stale.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
if ARGV[3] == 'queued' then
  redis.call('SET', KEYS[1], 'queued', 'PX', ARGV[4])
  return 1
end
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if last[1] and last[1][1] ~= ARGV[2] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
