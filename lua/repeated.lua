-- Repeated: equal steps as one step and a number. They take the same hits from the same limit in the same window.
-- So a hot counter costs Redis the same for two of them as for a hundred, and the counters of one rule share an
-- argument. Part of fixed_window, after tier.lua. The instants of the steps may differ: only that of the first one
-- is sent.
--
-- run    one step of one tier with the act REPEAT, then the number of steps (7 bytes); alone in its run
-- Reply  the value before the first step, VALUE_SIZE bytes. For a missing value, one of another kind and one of an
--        earlier window: no hits since the start of the step's window. The last number, the instant until which the
--        value is kept, has no meaning. The caller calculates the outcomes from the value, by the same twin.

local REPEATED = '>I2BBI7I7I7I7I7I7' -- the number of tiers is part of the kind

-- The hits after the steps.
local function hits_after(count, hits, limit, count_denied, times)
  for _ = 1, times do
    if count <= limit - hits or count_denied == 1 then count = count + min(hits, HITS_MAX - count) end
  end
  return count
end

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
  local kind, _, count_denied, now, hits, start, ends, limit, times = parse(REPEATED, argument)
  local count, since, kept_until = 0, start, -1
  local known = #raw >= VALUE_SIZE and parse('>I2', raw) == kind
  if known then
    local stored_count, stored_start, stored_until = parse('>I7I7I7', raw, 3)
    if stored_start >= start then count, since = stored_count, stored_start end
    kept_until = stored_until
  end
  answer(pack('>I2I7I7I7', kind, count, since, 0))
  if known and #raw > VALUE_SIZE then return run_each(key, argument, raw, times) end
  if limit == ALREADY_ADMITTED and since > start then return end -- the window of these hits is over
  local after = hits_after(count, hits, limit, count_denied, times)
  if after == count then return end
  local state, over = pack('>I7I7', after, since), since + (ends - start)
  if over <= kept_until then call('SETRANGE', key, '2', state)
  else write(key, argument:sub(1, 2) .. state, keep_until(over, now), now) end
end

-- Runs `argument` on the counters `first` to `last`, whose values were read. Does the same as `run` for each. The
-- loop has the usual case: a counter of the step's window that is kept long enough.
run_group = function(argument, keys, first, last, values)
  local kind, _, count_denied, hits, start, ends, limit, times, all, most
  if argument:byte(3) == REPEAT then
    kind, _, count_denied, _, hits, start, ends, limit, times = parse(REPEATED, argument)
    -- With at most this many hits before, every step is charged in full. It is negative if `all` is not exact.
    all = hits * times
    most = min(count_denied == 1 and HITS_MAX or limit, HITS_MAX) - all
  end
  for i = first, last do
    local key, raw = keys[i], values[i]
    local stored_kind, count, since, kept_until
    if raw and #raw == VALUE_SIZE then
      stored_kind, count, since, kept_until = parse('>I2I7I7I7', raw)
    end
    if kind and stored_kind == kind and since == start and kept_until >= ends then
      answered = answered + 1
      answers[answered] = raw
      local after = count <= most and count + all
        or hits_after(count, hits, limit, count_denied, times)
      if after ~= count then call('SETRANGE', key, '2', pack('>I7', after)) end
    else
      run_checked(run, FIRST_READ_END, LEAST, key, argument, raw)
    end
  end
end
