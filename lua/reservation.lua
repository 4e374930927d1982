-- Reservations: hits charged before their actual number is known, until settled.
-- Part of every script; twin of src/step/reservation.rs. They are stored in the counter's own value, at
-- byte `at`, so a counter without reservations costs nothing more:
--
--   first, last    4 bytes each, the open records, oldest first
--   until          7 bytes, the instant from which none of them can be settled, us
--   records        id (8 bytes), charged at, until (us), hits, and the cost (7 bytes each)

local RESERVATIONS_MAX = 10000
local OPEN_HEAD, OPEN_HEAD_SIZE = '>I4I4I7', 15
local RECORD_SIZE = 29

-- Creates the functions on demand, because most calls need none.
local function reservations()
  local records, put, remove, newest = deque()

  -- The reservations of the value that starts with `raw`; none if it is too short.
  local function open_at(key, raw, at, costs)
    local d = { key = key, at = at, base = at + OPEN_HEAD_SIZE, width = RECORD_SIZE + 7 * costs }
    d.first, d.last, d.ends = 0, 0, 0
    if #raw >= d.base then d.first, d.last, d.ends = parse(OPEN_HEAD, raw, at + 1) end
    return d
  end

  local function open_head(d) return pack(OPEN_HEAD, d.first, d.last, d.ends) end

  local function ends_of(d, index)
    return (parse('>I7', records(d, index, index + 1), 16))
  end

  -- Removes the newest reservation `id` that can still be settled. Returns when it was charged, its
  -- hits, the record, whose costs start at byte RECORD_SIZE + 1, and the index of the next newer one.
  local function take(d, id, now)
    local index = newest(d, id, d.first, d.last)
    while index and ends_of(d, index) <= now do index = newest(d, id, d.first, index) end
    if not index then return end
    local record = records(d, index, index + 1)
    local newer = index + remove(d, index, index + 1)
    call('SETRANGE', d.key, d.at, open_head(d))
    local made, _, hits = parse('>I7I7I7', record, 9)
    return made, hits, record, newer
  end

  -- The reservations from `index` on drain `sooner` than their records say, per tier: a reservation
  -- before them was given back in part. `drained` is the last number of each tier's cost.
  local function drain_sooner(d, index, sooner)
    local record = 'c' .. RECORD_SIZE + 14 .. 'I7' .. ('c14I7'):rep(#sooner - 1)
    while index < d.last do
      local to = min(index + PAGE, d.last)
      local format = '>' .. record:rep(to - index)
      local parts = { parse(format, records(d, index, to)) }
      for tier = 1, #sooner do
        for at = 2 * tier, #parts, 2 * #sooner do parts[at] = max(0, parts[at] - sooner[tier]) end
      end
      put(d, index, pack(format, unpack(parts)))
      index = to
    end
  end

  -- Removes reservations that cannot be settled any more, and adds one.
  local function reserve(d, id, made, ends, hits, costs, now)
    if d.first == d.last then d.first, d.last, d.ends = 0, 0, 0 end
    while d.first < d.last and ends_of(d, d.first) <= now do d.first = d.first + 1 end
    if d.last - d.first >= RESERVATIONS_MAX then d.first = d.first + 1 end
    if d.first >= PAGE and d.first > d.last - d.first then
      local live = records(d, d.first, d.last)
      d.first, d.last = 0, d.last - d.first
      put(d, 0, live)
    end
    d.ends = max(d.ends, ends)
    put(d, d.last, pack('>c8I7I7I7', id, made, ends, hits) .. costs)
    d.last = d.last + 1
    call('SETRANGE', d.key, d.at, open_head(d))
  end

  return open_at, take, reserve, open_head, drain_sooner
end
