-- Value: how all scripts read their argument, and how long they keep what they write.
-- First part of every script.
--
-- KEYS[i]  a counter
-- ARGV[i]  the step on it, packed as src/store/redis/script.rs does, the highest byte first:
--            act            1 byte   TAKE (no hits: look), GIVE_BACK, OPEN (take under a lease), CLOSE
--            count denied   1 byte   0 or 1
--            kind           1 byte   the machine's letter
--            tiers          1 byte   how many
--            now            7 bytes  the step's instant, us since the epoch
--            hits           7 bytes  without their sign
--            tiers          7 bytes  per number, see TIER of each machine
--            lease          8 bytes  its id, and 7 bytes until when it can be settled, us;
--                                    of OPEN and CLOSE only
-- Returns  one flat list of integers: per tier whether it lets the hits pass, 0 or 1, and the
--          machine's numbers. All integers are below 2^53, so doubles hold them exactly.

local GIVE_BACK, OPEN, CLOSE = 1, 2, 3
local HEAD, TIERS_AT = '>BBBBI7I7', 19
local call, pack, parse = redis.call, struct.pack, struct.unpack
local floor, max, min = math.floor, math.max, math.min

-- A value outlives what it says by this much, for callers whose clocks are a little behind.
local GRACE_MS = 1000

-- How long to keep a value that says nothing from `expires` on, in ms. Garbage collection, never
-- logic: the one place that divides, and it rounds up.
local function ttl(expires, now)
  return floor((max(expires - now, 0) + 999) / 1000) + GRACE_MS
end
