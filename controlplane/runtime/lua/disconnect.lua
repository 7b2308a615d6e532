-- Note the end of a connection, unless a newer one has taken its place. KEYS: connections hash. ARGV: field, connection.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call('HDEL', KEYS[1], ARGV[1])
