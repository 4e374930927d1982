-- Single: replies to a call of one step that takes hits of one tier, if the fast path applies. In a script
-- this is before the parts that such a call does not need, so that it does not create their functions.
local value
if #keys == 1 and #runs[1] == RUN_SIZE then
  value = pcall('GETRANGE', keys[1], '0', FIRST_READ_END)
  -- An error of the read has no length, so it counts as a case for `run`, which reports it.
  local reply = run_one(keys[1], runs[1], value)
  if reply then return reply end
end
