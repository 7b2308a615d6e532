-- Continue a job in a new incarnation, after a part of its log was lost or its replay gave other commands.
-- No entry is read twice: ids continue after those in the database, even if a clock went back.
-- KEYS: state, engine, events, commands, live jobs.
-- ARGV: 1 held value, 2 ms for which held holds, 3 the run id of this Redis or '', 4 job, 5 incarnation, 6 cursor,
--       7 last id of events that the database has, 8 of commands, 9 snapshot at the cursor, 10 event, 11 last number
--       of a command, 12 engine version,
--       then per answer that is not stored: commands, sequence, first input id, last, version, digest, incarnation.
-- Returns the id of the event, or false if the token is stale.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local function order(id)
  local ms, sequence = string.match(id, '(%d+)-(%d+)')
  return tonumber(ms), tonumber(sequence)
end
local function last_of(stream)
  if redis.call('EXISTS', stream) == 1 then
    local info = redis.call('XINFO', 'STREAM', stream)
    for i = 1, #info, 2 do
      if info[i] == 'last-generated-id' then
        return info[i + 1]
      end
    end
  end
  return '0-0'
end
local function go_on_behind(stream, id)
  local ms, sequence = order(id)
  local last_ms, last_sequence = order(last_of(stream))
  if ms > last_ms or (ms == last_ms and sequence > last_sequence) then
    redis.call('XADD', stream, id, 'x', '')
    redis.call('XDEL', stream, id)
  end
end
go_on_behind(KEYS[3], ARGV[7])
go_on_behind(KEYS[4], ARGV[8])
for i = 13, #ARGV, 7 do
  redis.call('XADD', KEYS[4], '*', 'c', ARGV[i], 'sequence', ARGV[i + 1], 'first', ARGV[i + 2], 'last', ARGV[i + 3],
    'version', ARGV[i + 4], 'digest', ARGV[i + 5], 'incarnation', ARGV[i + 6])
end
local run_id = ARGV[3]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
local began = redis.call('XADD', KEYS[3], '*', 'e', ARGV[10])
redis.call('HSET', KEYS[2], 'cursor', ARGV[6], 'deadline', '', 'sequence', ARGV[11], 'over', 0,
  'incarnation', ARGV[5],
  'run_id', run_id, 'began', began, 'snapshot', ARGV[9], 'snapshot_cursor', ARGV[6], 'snapshot_commands', last_of(KEYS[4]),
  'snapshot_version', ARGV[12], 'snapshot_incarnation', ARGV[5], 'snapshot_sequence', ARGV[11])
redis.call('SADD', KEYS[5], ARGV[4])
return began
