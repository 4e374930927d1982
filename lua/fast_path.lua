-- Fast path: applies most steps to states of fixed size. Part of fixed_window, sliding_window and gcra, after
-- the file of that name, and before tier.lua, which has all other cases and describes the value.

-- The last byte of the first read: more than a value of 16 tiers with the head of its reservations.
local FIRST_READ_END = '511'
-- Bytes of a run with one step of one tier without a lease.
local RUN_SIZE = 18 + 7 * TIER

-- The instant until which to keep a value whose state matters until `over`. For gcra, where every hit
-- moves `over`, 4 s and an eighth of the rest longer: hits in that time need not set the time to live.
local function keep_until(over, now)
  return over + SPARE * (4000000 + floor(max(over - now, 0) / 8))
end

-- Writes a value without reservations, and its time to live. `states` includes the first two bytes.
local function write(key, states, kept_until, now)
  call('SET', key, states .. pack('>I7', kept_until), 'PX', ttl(kept_until, now))
end

-- One step that takes hits of one tier, on a counter without reservations. It does the same as `run`, without
-- the tables and loops that the other cases need. Returns the reply, or nothing if it does not apply.
--
-- `take_one` returns whether the hits pass and the new state. If the state is to be written, it also
-- returns the instant until which it matters, the instant until which the value is kept or -1, and the
-- step's instant. It returns nothing for every case that needs `run`.
local function run_one(key, argument, raw)
  local allowed, state, over, kept_until, now = take_one(argument, raw)
  if allowed == nil then return end
  if over then
    if over <= kept_until then call('SETRANGE', key, '2', state) -- keeps the time to live
    else write(key, argument:sub(1, 2) .. state, keep_until(over, now), now) end
  end
  return (allowed and PASS or FAIL) .. state
end

local run_repeated -- fixed_window alone has it: see repeated.lua
