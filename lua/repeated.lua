-- Repeated: equal steps on one counter, as one step and a number. They take the same hits from the same limit in
-- the same window, so a hot counter costs Redis the same for two of them as for a hundred. Part of
-- fixed_window, after tier.lua. The instants of the steps may differ: only that of the first one is sent.
--
-- run    one step of one tier with the act REPEAT, then the number of steps (7 bytes); alone in its run
-- Reply  PASS, then the state before the first step, as STATE of fixed_window. The caller calculates the
--        outcomes from it, by the same twin.

-- The same by one step after the other, for a counter with reservations.
local function run_each(key, argument, raw, times)
  local step = argument:sub(4, -8) -- without the act and the number
  run_general = run_general or general()
  local before = answered
  run_general(key, argument:sub(1, 2) .. ('\0' .. step):rep(times), raw)
  for i = before + 1, answered do answers[i] = nil end
  answered = before
end

run_repeated = function(key, argument, raw)
  local kind, tiers, _, count_denied, now, hits, start, ends, limit, times =
    parse('>BBBBI7I7I7I7I7I7', argument)
  local count, since, kept_until = 0, start, -1
  local known = #raw >= VALUE_SIZE and raw:byte(1) == kind and raw:byte(2) == tiers
  if known then
    local stored_count, stored_start, stored_until = parse('>I7I7I7', raw, 3)
    if stored_start >= start then count, since = stored_count, stored_start end
    kept_until = stored_until
  end
  answer(PASS .. pack('>I7I7', count, since))
  if known and #raw > VALUE_SIZE then return run_each(key, argument, raw, times) end
  if limit == ALREADY_ADMITTED and since > start then return end -- the window of these hits is over
  local after = count
  for _ = 1, times do
    if after <= limit - hits or count_denied == 1 then after = after + min(hits, HITS_MAX - after) end
  end
  if after == count then return end
  local state, over = pack('>I7I7', after, since), since + (ends - start)
  if over <= kept_until then call('SETRANGE', key, '2', state)
  else write(key, argument:sub(1, 2) .. state, keep_until(over, now), now) end
end
