-- What an agent is to run now, under a sequence that no earlier orders had; nothing while Redis may have forgotten some.
-- KEYS: marker, sequence, the agent's processes. ARGV: the run id of this Redis, or '' for it to say itself.
-- Returns {sequence, value...} in the order of fields, or false.
local run_id = ARGV[1]
if run_id == '' then
  run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
end
if redis.call('GET', KEYS[1]) ~= run_id then
  return false
end
local held = redis.call('HGETALL', KEYS[3])
local fields, values = {}, {}
for i = 1, #held, 2 do
  table.insert(fields, held[i])
  values[held[i]] = held[i + 1]
end
table.sort(fields)
local found = {redis.call('INCR', KEYS[2])}
for _, field in ipairs(fields) do
  table.insert(found, values[field])
end
return found
