-- Tier: applies steps to states of fixed size per tier. Part of fixed_window, sliding_window and gcra,
-- after fast_path.lua, which applies most steps. Twin of src/step/tier.rs. All tiers are checked
-- before any is written. A denial, a peek and a refund of nothing write nothing.
--
-- Value: letter of the kind of state, number of tiers (1 byte each), STATE numbers per tier, the instant
-- until which the value is kept, us (7 bytes each), then open reservations if there are any.

-- Creates the function for all cases on demand, because most calls need only the fast path.
local function general()
  local T, S, read, load, packed, advance, fits, charge, refund, settle, latest, expires = states()

  -- Loads the states of `value` into S; clears S if `value` is empty.
  local function restore(value, last)
    for i = 0, last do
      if value ~= '' then load(i * STATE, value, 3 + 7 * i * STATE)
      else for j = 1, STATE do S[i * STATE + j] = nil end end
    end
  end

  -- The instant from which S counts as empty.
  local function expiry(last)
    local over = expires(0, 0)
    for i = 1, last do over = max(over, expires(i * TIER, i * STATE)) end
    return over
  end

  local open_at, take, reserve, drain_sooner, _ -- created on demand

  -- Applies the steps of one run, and writes the final states once. A step with a lease is alone in its
  -- run.
  return function(key, argument, raw)
    local kind, tiers, act, count_denied, now, hits, at = parse(RUN_HEAD, argument)
    local last, size = tiers - 1, 9 + 7 * tiers * STATE
    if #raw < size or raw:byte(1) ~= kind or raw:byte(2) ~= tiers then
      raw = '' -- another kind of state or number of tiers: counts as empty
    end
    local open, id, ends
    if #raw > size or act == OPEN then
      if not open_at then open_at, take, reserve, _, drain_sooner = reservations() end
      open = open_at(key, raw, size, tiers * COSTS)
    end
    local kept, over, wrote_at, taken = raw ~= '' and raw:sub(1, size - 7) or '', 0, nil, false
    -- The instant until which the value is kept, and the step's instant if one of these steps set it. A
    -- missing value, or one with reservations, counts as not kept.
    local kept_until, set_at = #raw == size and parse('>I7', raw, size - 6) or -1, nil
    restore(kept, last)

    while true do
      for i = 0, last do
        at = read(i * TIER, argument, at)
        advance(i * TIER, i * STATE)
      end
      local changed, allowed, passes = false, true, nil
      if act == TAKE or act == OPEN then
        allowed = fits(0, 0, hits)
        passes = allowed and PASS or FAIL
        for i = 1, last do
          local fit = fits(i * TIER, i * STATE, hits)
          passes, allowed = passes .. (fit and PASS or FAIL), allowed and fit
        end
        if hits > 0 and (allowed or count_denied == 1) then
          for i = 0, last do changed = charge(i * TIER, i * STATE, hits) or changed end
        end
      else
        passes = PASS:rep(tiers)
      end
      if act >= OPEN then id, ends, at = parse('>c8I7', argument, at) end
      if act == GIVE_BACK then
        for i = 0, last do changed = refund(i * TIER, i * STATE, hits) or changed end
      elseif act == CLOSE and open then
        local made, charged, record, newer = take(open, id, now)
        taken = made ~= nil
        local sooner, any = {}, false
        for i = 0, taken and last or -1 do
          local cost, part, drained = 0, 0, 0
          if COSTS > 0 then
            cost, part, drained = parse('>I7I7I7', record, RECORD_SIZE + 1 + 21 * i)
          end
          local t, s = i * TIER, i * STATE
          local settled, by = settle(t, s, hits, made, charged, cost, part, drained)
          changed, any, sooner[i + 1] = settled or changed, any or (COSTS > 0 and by > 0), by
        end
        if any then drain_sooner(open, newer, sooner) end
      elseif act == OPEN and not allowed then
        act = TAKE -- a denial reserves nothing
      end

      local state = packed(0)
      for i = 1, last do state = state .. packed(i * STATE) end
      answer(passes .. state)
      -- A state that only time has changed is not written.
      if changed then kept = argument:sub(1, 2) .. state
      elseif taken or at <= #argument then restore(kept, last) end
      if changed or taken then
        over, wrote_at = expiry(last), now
        if over > kept_until then kept_until, set_at = keep_until(over, now), now end
      end
      if at > #argument then break end
      act, count_denied, now, hits, at = parse(HEAD, argument, at)
    end

    if not wrote_at then return end
    if not open or (open.first == open.last and act ~= OPEN) then
      if set_at then return write(key, kept, kept_until, set_at) end
      return call('SETRANGE', key, '0', kept)
    end
    if open.first == open.last then open.ends = 0 end
    kept_until = max(over, open.ends, act == OPEN and ends or 0)
    kept = kept .. pack('>I7', kept_until)
    if #raw > size then call('SETRANGE', key, '0', kept)
    else call('SET', key, kept, 'PX', ttl(kept_until, wrote_at)) end
    if act == OPEN then
      local made, costs = now, ''
      for i = 0, last do
        local t = i * TIER
        made = max(made, latest(i * STATE))
        if COSTS > 0 then
          local drained = expires(t, i * STATE)
          costs = costs .. pack('>I7I7I7', T[t + COST], T[t + COST + 1], drained)
        end
      end
      reserve(open, id, made, ends, hits, costs, now)
    end
    if #raw > size then call('PEXPIRE', key, ttl(kept_until, wrote_at)) end
  end
end

local LEAST = 0 -- a value of any length is a counter, or counts as empty
local run_general

local function run(key, argument, raw)
  if #argument == RUN_SIZE then
    local reply = run_one(key, argument, raw)
    if reply then return answer(reply) end
  end
  if argument:byte(3) == REPEAT then return run_repeated(key, argument, raw) end
  run_general = run_general or general()
  run_general(key, argument, raw)
end
