-- Protocol: how every script reads its arguments, replies, and sets the time to live of what it writes.
-- First part of every script and of the library. This is the form of steps; quota.lua has another one.
--
-- keys[i]  a counter; it may be named more than once
-- A call has one of two forms:
--   single  runs[i] is the run of keys[i]. One more element, which is empty, says that every counter is named once
--           and that no value is large, so one MGET may read all of them
--   groups  each run is that of several counters, the next ones in the order of the keys. The last element has the
--           number of counters of each run, 2 bytes each. So runs has fewer elements than keys. What the empty
--           element says holds for these calls too. See repeated.lua
--
-- A run is the steps on one counter in order, encoded by src/store/redis/script.rs, big-endian:
--            kind           1 byte   letter of the kind of state
--            tiers          1 byte   number of tiers
--          then per step
--            act            1 byte   TAKE (0 hits: peek), GIVE_BACK, OPEN (take under a lease), CLOSE,
--                                    REPEAT (a number of equal steps: see repeated.lua)
--            count denied   1 byte   0 or 1
--            now            7 bytes  the step's instant, us since the epoch
--            hits           7 bytes  without sign
--            tiers          7 bytes  per number, see TIER in each file
--            lease          8 bytes  its id, and 7 bytes the instant from which it cannot be settled, us;
--                                    only for OPEN and CLOSE
-- Returns  one string, counter by counter in the order of the keys, and step by step: per tier 1 byte, 1 if it
--          allows the hits and 0 if not; then per tier its numbers, 7 bytes each. REPEAT has another reply. A run
--          on an unreadable value gets UNREADABLE and does not run; if it is alone in the call, the call
--          returns the error. All integers are below 2^53, so doubles hold them exactly.

local TAKE, GIVE_BACK, OPEN, CLOSE, REPEAT = 0, 1, 2, 3, 4
local RUN_HEAD, HEAD = '>BBBBI7I7', '>BBI7I7'
local PASS, FAIL, UNREADABLE = '\1', '\0', '\2'

-- What the parts use of Redis and of Lua; globals.lua sets them.
local call, pcall, pack, parse, floor, max, min

-- A value is kept this much longer than its state matters, for callers whose clocks are behind.
local GRACE_MS = 1000

-- The time to live in ms of a value that is kept until `expires`. It affects no decision, so it may divide;
-- it rounds up. As text, which costs Redis less, and usually the same text as before.
local last_ms, last_text
local function ttl(expires, now)
  local ms = floor((max(expires - now, 0) + 999) / 1000) + GRACE_MS
  if ms ~= last_ms then last_ms, last_text = ms, ('%.0f'):format(ms) end
  return last_text
end
