-- Append log lines to their job's bounded stream; each entry says how many lines came before it, so that a gap shows.
-- KEYS: lines, count of lines, jobs that have lines. ARGV: most entries, job, number of lines, payload.
local upto = redis.call('INCRBY', KEYS[2], ARGV[3])
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'l', ARGV[4], 'before', upto - ARGV[3])
redis.call('SADD', KEYS[3], ARGV[2])
return upto
