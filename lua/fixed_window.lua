-- Fixed window: counts the hits of the current window. The state of fixed_window.
-- Twin of src/step/fixed_window.rs; followed by fast_path.lua and tier.lua, which apply the steps.
--
-- TIER   start of the window of the step's instant, and the instant until which its hits are kept, us; the
--        limit: hits per window
-- STATE  hits; start of their window, us. A tier replies both.

local TIER, STATE, COSTS, SPARE = 3, 2, 0, 0
local VALUE_SIZE = 9 + 7 * STATE -- one tier, without reservations
local HITS_MAX = 2 ^ 53 - 1
-- The limit for hits that another instance already allowed: see src/step/fixed_window.rs.
local ALREADY_ADMITTED = 2 ^ 53

-- The fast path: see `run_one` in fast_path.lua.
local function take_one(argument, raw)
  local kind, act, count_denied, now, hits, start, ends, limit =
    parse('>I2BBI7I7I7I7I7', argument) -- the number of tiers is part of `kind`
  local count, since, kept_until = 0, start, -1
  if raw ~= '' then
    if #raw ~= VALUE_SIZE then return end
    local stored_kind, stored_count, stored_start, stored_until = parse('>I2I7I7I7', raw)
    if stored_kind ~= kind then return end
    if stored_start >= start then count, since = stored_count, stored_start end
    kept_until = stored_until
  end
  if act ~= TAKE or since > start or count > HITS_MAX - hits then return end
  local allowed, over = count <= limit - hits, nil
  if hits > 0 and (allowed or count_denied == 1) then count, over = count + hits, ends end
  return allowed, pack('>I7I7', count, since), over, kept_until, now
end

-- Creates the functions of all other cases on demand.
local function states()
  -- Parameters and states of the tiers in the current step: tier i starts at T[i * TIER + 1].
  local T, S = {}, {}

  local function read(t, argument, at)
    T[t + 1], T[t + 2], T[t + 3], at = parse('>I7I7I7', argument, at)
    return at
  end

  local function load(s, bytes, at) S[s + 1], S[s + 2] = parse('>I7I7', bytes, at) end
  local function packed(s) return pack('>I7I7', S[s + 1], S[s + 2]) end

  local function advance(t, s)
    -- A later window than the step's stays. The clock was set back, and no count may be lost.
    if S[s + 2] and S[s + 2] >= T[t + 1] then return end
    S[s + 1], S[s + 2] = 0, T[t + 1]
  end

  local function fits(t, s, hits)
    -- Subtracted on the right, because count + hits may be inexact in a double.
    return S[s + 1] <= T[t + 3] - hits
  end

  local function charge(t, s, hits)
    -- The window of these hits is over.
    if T[t + 3] == ALREADY_ADMITTED and S[s + 2] > T[t + 1] then return false end
    local more = min(hits, HITS_MAX - S[s + 1])
    S[s + 1] = S[s + 1] + more
    return more > 0
  end

  local function subtract(s, hits)
    local back = min(hits, S[s + 1])
    S[s + 1] = S[s + 1] - back
    return back > 0
  end

  local function refund(t, s, hits)
    if S[s + 2] > T[t + 1] then return false end -- the window of these hits is over
    return subtract(s, hits)
  end

  local function settle(t, s, hits, made, charged)
    if hits >= charged then return charge(t, s, hits - charged) end
    if made >= S[s + 2] then return subtract(s, charged - hits) end
    return false -- the charge's window is over
  end

  local function latest(s) return S[s + 2] end

  local function expires(t, s)
    if S[s + 1] == 0 then return S[s + 2] end
    return S[s + 2] + (T[t + 2] - T[t + 1])
  end

  return T, S, read, load, packed, advance, fits, charge, refund, settle, latest, expires
end
