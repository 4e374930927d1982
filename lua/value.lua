-- Value: how all scripts read their argument, keep records in the key's string, and let it expire.
-- First part of every script. Its Rust twin is the standard library's VecDeque.
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

-- Records read at once while searching.
local PAGE = 64

-- Records of one width in the key's string: d.first up to d.last, record 0 at byte d.base.
-- Adding and removing writes only what moves, so a counter of 100000 records costs no more per
-- hit than one of ten.

local function records(d, from, to)
  return call('GETRANGE', d.key, d.base + from * d.width, d.base + to * d.width - 1)
end

local function put(d, at, bytes)
  call('SETRANGE', d.key, d.base + at * d.width, bytes)
  d.cached = min(d.cached or 0, at)
end

-- Takes records [from, to) out; the shorter side moves up. Tells how far those before moved.
local function remove(d, from, to)
  if from - d.first > d.last - to then
    if to < d.last then put(d, from, records(d, to, d.last)) end
    d.last = d.last - (to - from)
    return 0
  end
  if d.first < from then put(d, d.first + (to - from), records(d, d.first, from)) end
  d.first = d.first + (to - from)
  return to - from
end

-- The newest record of [from, to) that starts with `id`.
local function newest(d, id, from, to)
  while from < to do
    local low = max(from, to - PAGE)
    local page, found = records(d, low, to), nil
    local at = page:find(id, 1, true)
    while at do
      if (at - 1) % d.width == 0 then found = (at - 1) / d.width end
      at = page:find(id, at + 1, true)
    end
    if found then return low + found end
    to = low
  end
end
