-- Queue every live job that is neither held nor queued, and has unread entries or an expired deadline.
-- A process without heartbeats holds no lease. If Celery's queue is empty, the task of a job that has been queued for
-- longer than a limit was lost: its process died before it took the lease.
-- KEYS: live jobs, Celery's queue. ARGV: ms for which queued holds, ms of that limit. Returns the jobs to enqueue.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting = redis.call('LLEN', KEYS[2])
local stranded = {}
for _, job in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local prefix = 'job:' .. job
  local state = redis.call('GET', prefix .. ':state')
  local holder = state and string.match(state, '^held:%d+:(%w+):')
  if holder and redis.call('EXISTS', 'process:' .. holder) == 0 then
    redis.call('DEL', prefix .. ':state')
    state = false
  end
  if state == 'queued' and waiting == 0 and redis.call('PTTL', prefix .. ':state') < ARGV[1] - ARGV[2] then
    state = false
  end
  if not state then
    local known = redis.call('HMGET', prefix .. ':engine', 'cursor', 'deadline', 'over')
    local last = redis.call('XREVRANGE', prefix .. ':events', '+', '-', 'COUNT', 1)
    local unread = last[1] and last[1][1] ~= known[1]
    local late = known[2] and known[2] ~= '' and now >= tonumber(known[2]) and known[3] ~= '1'
    if unread or late then
      redis.call('SET', prefix .. ':state', 'queued', 'PX', ARGV[1])
      table.insert(stranded, job)
    end
  end
end
return stranded
