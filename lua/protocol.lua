-- Value: how all scripts read their argument, and how long they keep what they write.
-- First part of every script.
--
-- KEYS[i]  a counter; the same one may be named again
-- ARGV[i]  a run: steps on it, one after the other, packed as src/store/redis/script.rs does, the
--          highest byte first:
--            kind           1 byte   the machine's letter
--            tiers          1 byte   how many
--          then per step
--            act            1 byte   TAKE (no hits: look), GIVE_BACK, OPEN (take under a lease), CLOSE
--            count denied   1 byte   0 or 1
--            now            7 bytes  the step's instant, us since the epoch
--            hits           7 bytes  without their sign
--            tiers          7 bytes  per number, see TIER of each machine
--            lease          8 bytes  its id, and 7 bytes until when it can be settled, us;
--                                    of OPEN and CLOSE only
-- ARGV[#KEYS + 1]  if it is there, every counter is named once, and no value is large: they may be
--          read all at once
-- Returns  one string, step by step in the order of the runs: per tier 1 byte, whether it lets the
--          hits pass, 0 or 1; then per tier the machine's numbers, 7 bytes each. A step on a value
--          that cannot be read answers REFUSED, and nothing was done; one that is alone in the call
--          answers with the error. All integers are below 2^53, so doubles hold them exactly.

local TAKE, GIVE_BACK, OPEN, CLOSE = 0, 1, 2, 3
local RUN_HEAD, HEAD = '>BBBBI7I7', '>BBI7I7'
local PASSES = { [true] = '\1', [false] = '\0' }
local REFUSED = '\2'
local call, pcall, pack, parse = redis.call, redis.pcall, struct.pack, struct.unpack
local floor, max, min, type = math.floor, math.max, math.min, type

-- The answers so far.
local answers, answered = {}, 0

local function answer(bytes)
  answered = answered + 1
  answers[answered] = bytes
end

-- A value outlives what it says by this much, for callers whose clocks are a little behind.
local GRACE_MS = 1000

-- How long to keep a value that says nothing from `expires` on, or is kept until then, in ms.
-- Garbage collection, never logic: the one place that divides, and it rounds up. As text, which costs
-- Redis less, and most often the same one as before.
local last_ms, last_text
local function ttl(expires, now)
  local ms = floor((max(expires - now, 0) + 999) / 1000) + GRACE_MS
  if ms ~= last_ms then last_ms, last_text = ms, ('%.0f'):format(ms) end
  return last_text
end

-- Runs all runs by `run`, each on the beginning of its counter's value. A value that is there and
-- shorter than `least` is somebody else's.
local function run_all(run, beginning, least)
  -- Nothing is said of a counter that is not there or cannot be read, nor of any if weir's user may
  -- not do this: those are asked for one by one. `unpack` takes seven times the largest call.
  local keys, runs = KEYS, ARGV
  local values = runs[#keys + 1] and pcall('MGET', unpack(keys)) or {}
  for i = 1, #keys do
    local key, raw = keys[i], values[i]
    if not raw then raw = pcall('GETRANGE', key, '0', beginning) end
    if type(raw) == 'string' and #raw > 0 and #raw < least then
      raw = redis.error_reply('WRONGTYPE no counter of weir')
    end
    if type(raw) == 'string' then
      run(key, runs[i], raw)
    elseif #keys == 1 then
      return raw
    else
      answer(REFUSED)
    end
  end
  return table.concat(answers)
end
