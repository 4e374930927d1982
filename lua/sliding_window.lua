-- Sliding window: counts the hits of the current and of the previous window. The state of sliding_window.
-- Twin of src/step/sliding_window.rs; followed by fast_path.lua and tier.lua, which apply the steps.
--
-- TIER   start of the window of the step's instant, its length, the rest of it, us; the limit: hits per
--        window, below 2^52
-- STATE  hits in the current window, hits in the previous window; start of the current window, us. A
--        tier replies all three.

local TIER, STATE, COSTS, SPARE = 4, 3, 0, 0
local VALUE_SIZE = 9 + 7 * STATE -- one tier, without reservations
local COUNT_MAX = 2 ^ 52 - 1
-- The limit for hits that another instance already allowed: see src/step/sliding_window.rs.
local ALREADY_ADMITTED = 2 ^ 52
local HALF = 2 ^ 24

-- a * x >= b * y, exact although the products have up to 100 bits: see src/step/sliding_window.rs.
local function covers(a, x, b, y)
  local a1, x1, b1, y1 = floor(a / HALF), floor(x / HALF), floor(b / HALF), floor(y / HALF)
  local a0, x0, b0, y0 = a - a1 * HALF, x - x1 * HALF, b - b1 * HALF, y - y1 * HALF
  local low = a0 * x0 - b0 * y0
  local middle = a1 * x0 + a0 * x1 - b1 * y0 - b0 * y1 + floor(low / HALF)
  return a1 * x1 - b1 * y1 + floor(middle / HALF) >= 0
end

-- The fast path: see `run_one` in fast_path.lua.
local function take_one(argument, raw)
  local kind, act, count_denied, now, hits, start, window, rest, limit =
    parse('>I2BBI7I7I7I7I7I7', argument) -- the number of tiers is part of `kind`
  local current, previous, kept_until = 0, 0, -1
  if raw ~= '' then
    if #raw ~= VALUE_SIZE then return end
    local stored_kind, stored_current, stored_previous, stored_start, stored_until =
      parse('>I2I7I7I7I7', raw)
    if stored_kind ~= kind or stored_start > start then return end
    if stored_start == start then current, previous = stored_current, stored_previous
    elseif stored_start + window == start then previous = stored_current end
    kept_until = stored_until
  end
  if act ~= TAKE or current > COUNT_MAX - hits then return end
  local room, over = limit - current - hits, nil
  local allowed = room >= 0 and (previous == 0 or covers(room, window, previous, rest))
  if hits > 0 and (allowed or count_denied == 1) then
    current, over = current + hits, start + window + window
  end
  return allowed, pack('>I7I7I7', current, previous, start), over, kept_until, now
end

-- Creates the functions of all other cases on demand.
local function states()
  -- Parameters and states of the tiers in the current step: tier i starts at T[i * TIER + 1].
  local T, S = {}, {}

  local function read(t, argument, at)
    T[t + 1], T[t + 2], T[t + 3], T[t + 4], at = parse('>I7I7I7I7', argument, at)
    return at
  end

  local function load(s, bytes, at) S[s + 1], S[s + 2], S[s + 3] = parse('>I7I7I7', bytes, at) end
  local function packed(s) return pack('>I7I7I7', S[s + 1], S[s + 2], S[s + 3]) end

  local function advance(t, s)
    local start, kept = T[t + 1], S[s + 3]
    -- A later window stays too. The clock was set back, and no count may be lost.
    if kept and kept >= start then return end
    local previous = kept and kept + T[t + 2] == start and S[s + 1] or 0
    S[s + 1], S[s + 2], S[s + 3] = 0, previous, start
  end

  local function fits(t, s, hits)
    -- previous * rest / window + current + hits <= max, without dividing.
    local room = T[t + 4] - S[s + 1] - hits
    local rest = S[s + 3] > T[t + 1] and T[t + 2] or T[t + 3]
    return room >= 0 and covers(room, T[t + 2], S[s + 2], rest)
  end

  local function charge(t, s, hits)
    if T[t + 4] == ALREADY_ADMITTED and S[s + 3] > T[t + 1] then
      if S[s + 3] > T[t + 1] + T[t + 2] then return false end -- neither window has these hits
      local before = min(hits, COUNT_MAX - S[s + 2])
      S[s + 2] = S[s + 2] + before
      return before > 0
    end
    local more = min(hits, COUNT_MAX - S[s + 1])
    S[s + 1] = S[s + 1] + more
    return more > 0
  end

  local function refund(t, s, hits)
    -- The newest hits first, as in every algorithm. None of a window after the step's: the hits were
    -- taken before it (the step's window is over, or the clock was set back).
    if S[s + 3] > T[t + 1] + T[t + 2] then return false end -- neither window has these hits
    local current = S[s + 3] > T[t + 1] and 0 or min(hits, S[s + 1])
    local previous = min(hits - current, S[s + 2])
    S[s + 1], S[s + 2] = S[s + 1] - current, S[s + 2] - previous
    return current + previous > 0
  end

  local function settle(t, s, hits, made, charged)
    if hits >= charged then return charge(t, s, hits - charged) end
    local i = made >= S[s + 3] and 1 or 2
    if made + T[t + 2] < S[s + 3] then return false end -- neither window has the charge
    local back = min(charged - hits, S[s + i])
    S[s + i] = S[s + i] - back
    return back > 0
  end

  local function latest(s) return S[s + 3] end

  local function expires(t, s)
    local edge = S[s + 3] + T[t + 2]
    if S[s + 1] > 0 then return edge + T[t + 2] end
    return S[s + 2] > 0 and edge or S[s + 3]
  end

  return T, S, read, load, packed, advance, fits, charge, refund, settle, latest, expires
end
