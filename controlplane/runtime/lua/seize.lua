-- Take a lease that one process at a time may hold. A lease is free if its process sends no heartbeats.
-- KEYS: lease. ARGV: value (the name of the process, a colon, a nonce), ms until it expires.
-- Returns 1, or 0 if another process holds it.
local held = redis.call('GET', KEYS[1])
local holder = held and string.match(held, '^(%w+):')
if held and not (holder and redis.call('EXISTS', 'writer:' .. holder) == 0) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
