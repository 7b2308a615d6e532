-- Everything that follows from one read, or nothing where the token is stale.
-- KEYS: state, engine, commands, then one agent's hash of processes per change.
-- ARGV: 1 held value, 2 ms for which held holds, 3 cursor, 4 deadline, 5 over,
--       6 number of commands, 7 commands, 8 first input id, 9 engine version, 10 digest,
--       11 snapshot or '', 12 frames channel, 13 frames or '', 14 incarnation,
--       then per change: field, instance, process order ('' to stop that instance).
-- Returns 1, or 0 where nothing was done.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[2], 'cursor', ARGV[3], 'deadline', ARGV[4], 'over', ARGV[5])
local count = tonumber(ARGV[6])
if count > 0 then
  local upto = redis.call('HINCRBY', KEYS[2], 'sequence', count)
  redis.call('XADD', KEYS[3], '*', 'c', ARGV[7], 'sequence', upto - count + 1, 'first', ARGV[8], 'last', ARGV[3],
    'version', ARGV[9], 'digest', ARGV[10], 'incarnation', ARGV[14])
end
if ARGV[11] ~= '' then
  local last = redis.call('XREVRANGE', KEYS[3], '+', '-', 'COUNT', 1)
  redis.call('HSET', KEYS[2], 'snapshot', ARGV[11], 'snapshot_cursor', ARGV[3],
    'snapshot_commands', last[1] and last[1][1] or '0-0', 'snapshot_version', ARGV[9],
    'snapshot_incarnation', ARGV[14], 'snapshot_sequence', redis.call('HGET', KEYS[2], 'sequence'))
end
local moved = {}
for i = 4, #KEYS do
  local at = 15 + (i - 4) * 3
  local field, instance, order = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if order ~= '' then
    redis.call('HSET', KEYS[i], field, instance .. '\0' .. order)
  else
    local running = redis.call('HGET', KEYS[i], field)
    if running and string.sub(running, 1, #instance + 1) == instance .. '\0' then
      redis.call('HDEL', KEYS[i], field)
    end
  end
  moved[string.gsub(KEYS[i], ':processes$', ':moved')] = true
end
for channel in pairs(moved) do
  redis.call('PUBLISH', channel, '')
end
if ARGV[13] ~= '' then
  redis.call('PUBLISH', ARGV[12], ARGV[13])
end
return 1
