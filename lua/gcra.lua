-- GCRA: keeps the instant at which a leaky bucket has drained, and a token bucket is full again.
-- Twin of src/step/gcra.rs; followed by fast_path.lua and tier.lua, which apply the steps.
--
-- TIER   the step's instant, us; parts per us; then durations and instants of two numbers each, whole us
--        and parts of one: the cost of the hits, the latest arrival time within the limit, and the latest
--        that denied hits can cause. A refund has instead of the last the only arrival time to which it
--        applies, or NO_TIME for every one
-- STATE  theoretical arrival time, whole us and parts of one. A tier replies both.

local TIER, STATE, COSTS, SPARE = 8, 2, 3, 1
local VALUE_SIZE = 9 + 7 * STATE -- one tier, without reservations
local NOW, PARTS, COST, LATEST_ALLOWED, LATEST_DENIED = 1, 2, 3, 5, 7
local REFUND_ONLY_AT = LATEST_DENIED
local LAST, NO_TIME = 2 ^ 53 - 2, 2 ^ 53

-- a <= b
local function at_most(a, a_part, b, b_part)
  return a < b or (a == b and a_part <= b_part)
end

-- a + b, at most the last instant that is exact in a double.
local function plus(parts, a, a_part, b, b_part)
  if a > LAST - min(b, LAST) then return LAST, 0 end
  -- The sum of the parts may be inexact, so a_part is compared with what b_part lacks of a whole us.
  local missing = parts - b_part
  if a_part >= missing then return a + b + 1, a_part - missing end
  return a + b, a_part + b_part
end

-- The fast path: see `run_one` in fast_path.lua.
local function take_one(argument, raw)
  -- The number of tiers is part of `kind`.
  local kind, act, count_denied, at, hits, now, parts, cost, cost_part, latest_allowed,
    latest_allowed_part, latest_denied, latest_denied_part = parse('>I2BBI7I7I7I7I7I7I7I7I7I7', argument)
  local micros, part, kept_until = now, 0, -1
  if raw ~= '' then
    if #raw ~= VALUE_SIZE then return end
    local stored_kind, stored, stored_part, stored_until = parse('>I2I7I7I7', raw)
    if stored_kind ~= kind or stored_part >= parts then return end
    if stored >= now then micros, part = stored, stored_part end
    kept_until = stored_until
  end
  if act ~= TAKE or hits == 0 then return end
  local after, after_part = plus(parts, micros, part, cost, cost_part)
  if not at_most(after, after_part, latest_allowed, latest_allowed_part) then
    if count_denied == 1 then return end
    return false, pack('>I7I7', micros, part)
  end
  if not at_most(after, after_part, latest_denied, latest_denied_part) then return end
  if after == micros and after_part == part then return end -- already at the largest instant
  return true, pack('>I7I7', after, after_part), after_part > 0 and after + 1 or after, kept_until, at
end

-- Creates the functions of all other cases on demand.
local function states()
  -- Parameters and states of the tiers in the current step: tier i starts at T[i * TIER + 1].
  local T, S = {}, {}

  local function read(t, argument, at)
    T[t + 1], T[t + 2], T[t + 3], T[t + 4], T[t + 5], T[t + 6], T[t + 7], T[t + 8], at =
      parse('>I7I7I7I7I7I7I7I7', argument, at)
    return at
  end

  local function load(s, bytes, at) S[s + 1], S[s + 2] = parse('>I7I7', bytes, at) end
  local function packed(s) return pack('>I7I7', S[s + 1], S[s + 2]) end

  -- to - from, where `from` is not larger.
  local function between(parts, from, from_part, to, to_part)
    if to_part >= from_part then return to - from, to_part - from_part end
    return to - from - 1, to_part + (parts - from_part)
  end

  -- Rounds up a part that is too large, because the rule had more requests when it was stored.
  local function in_parts(parts, micros, part)
    if part < parts then return micros, part end
    return micros + 1, 0
  end

  -- Stores an arrival time, and returns whether it changed.
  local function store(s, micros, part)
    local other = S[s + 1] ~= micros or S[s + 2] ~= part
    S[s + 1], S[s + 2] = micros, part
    return other
  end

  local function advance(t, s)
    if S[s + 1] then S[s + 1], S[s + 2] = in_parts(T[t + PARTS], S[s + 1], S[s + 2]) end
    if not S[s + 1] or S[s + 1] < T[t + NOW] then S[s + 1], S[s + 2] = T[t + NOW], 0 end
  end

  local function after(t, s)
    return plus(T[t + PARTS], S[s + 1], S[s + 2], T[t + COST], T[t + COST + 1])
  end

  local function fits(t, s)
    local micros, part = after(t, s)
    return at_most(micros, part, T[t + LATEST_ALLOWED], T[t + LATEST_ALLOWED + 1])
  end

  local function charge(t, s)
    local micros, part = after(t, s)
    local latest, latest_part = T[t + LATEST_DENIED], T[t + LATEST_DENIED + 1]
    if at_most(latest, latest_part, S[s + 1], S[s + 2]) then latest, latest_part = S[s + 1], S[s + 2] end
    if at_most(micros, part, latest, latest_part) then return store(s, micros, part) end
    return store(s, latest, latest_part)
  end

  -- Subtracts a duration, at least to the step's instant, at which the bucket is empty.
  local function subtract(t, s, micros, part)
    local parts, now = T[t + PARTS], T[t + NOW]
    local empty, empty_part = plus(parts, now, 0, micros, part)
    if at_most(S[s + 1], S[s + 2], empty, empty_part) then return store(s, now, 0) end
    return store(s, between(parts, micros, part, S[s + 1], S[s + 2]))
  end

  local function refund(t, s)
    local only, only_part = T[t + REFUND_ONLY_AT], T[t + REFUND_ONLY_AT + 1]
    if only ~= NO_TIME and (S[s + 1] ~= only or S[s + 2] ~= only_part) then return false end
    return subtract(t, s, T[t + COST], T[t + COST + 1])
  end

  -- Also returns how much earlier hits that were charged later have drained, in whole us, rounded up.
  local function settle(t, s, _, _, _, micros, part, drained)
    -- The actual cost is charged in full, because it was used even if it exceeds the limit.
    local parts, cost, cost_part = T[t + PARTS], T[t + COST], T[t + COST + 1]
    micros, part = in_parts(parts, micros, part)
    if at_most(micros, part, cost, cost_part) then
      local more, more_part = between(parts, micros, part, cost, cost_part)
      return store(s, plus(parts, S[s + 1], S[s + 2], more, more_part)), 0
    end
    -- Only the part that has not drained can be given back, because later hits have used the rest. The
    -- charge has drained at `drained` at the latest, so `drained - now` bounds that part.
    local back, back_part = between(parts, cost, cost_part, micros, part)
    local left = max(0, drained - T[t + NOW])
    if not at_most(back, back_part, left, 0) then back, back_part = left, 0 end
    local before, before_part = S[s + 1], S[s + 2]
    local changed = subtract(t, s, back, back_part)
    local sooner, sooner_part = between(parts, S[s + 1], S[s + 2], before, before_part)
    return changed, sooner_part > 0 and sooner + 1 or sooner
  end

  local function latest() return 0 end

  local function expires(t, s)
    return S[s + 2] > 0 and S[s + 1] + 1 or S[s + 1]
  end

  return T, S, read, load, packed, advance, fits, charge, refund, settle, latest, expires
end
