-- Release the lease, and block the job for a while. KEYS: state. ARGV: held value, ms.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], 'resting', 'PX', ARGV[2])
return 1
