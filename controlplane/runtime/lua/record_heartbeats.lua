-- Record heartbeats, by Redis' own clock. KEYS: presence hash. ARGV: per heartbeat: field, age in ms, load.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], string.format('%d %s', now - ARGV[i + 1], ARGV[i + 2]))
end
return now
