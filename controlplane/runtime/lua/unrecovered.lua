-- Queue the jobs that need recovery: their log was written in an earlier run of this Redis, or their new incarnation has
-- no answer yet (its answer restores agents' orders). A holder from an earlier run of Redis has lost its connection and
-- its lease.
-- KEYS: per job: state, engine. ARGV: ms for which queued holds, the run id of this Redis or '' to read it here.
-- Returns per job: 0 complete, 1 recovery pending, 2 queued now.
local run_id = ARGV[2]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
local function behind(id, other)
  local ms, sequence = string.match(id, '(%d+)-(%d+)')
  local other_ms, other_sequence = string.match(other, '(%d+)-(%d+)')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms < other_ms or (ms == other_ms and tonumber(sequence) < tonumber(other_sequence))
end
local found = {}
for i = 1, #KEYS, 2 do
  local known = redis.call('HMGET', KEYS[i + 1], 'run_id', 'began', 'cursor')
  if known[1] == run_id and not (known[2] and behind(known[3], known[2])) then
    table.insert(found, 0)
  else
    local state = redis.call('GET', KEYS[i])
    local holders = state and string.match(state, '^held:.*:([^:]+)$')
    if not state or (holders and holders ~= run_id) then
      redis.call('SET', KEYS[i], 'queued', 'PX', ARGV[1])
      table.insert(found, 2)
    else
      table.insert(found, state == 'resting' and 0 or 1)
    end
  end
end
return found
