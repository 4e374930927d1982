-- Entries: one entry per unit in use. The state of sliding_window_log and concurrency.
-- Twin of src/step/entries.rs. short_log.lua, before it, applies most steps on short logs. All tiers read the same
-- entries.
--
-- TIER   units that were taken at this instant or later are in use, us; how long a unit is in use, us;
--        the limit: units in use at once
-- Value  letter of the kind of state (1 byte); bytes of room for reservations; first and last unit
--        (4 bytes each); the reservations; units, oldest first: for concurrency the lease's id
--        (8 bytes), then the instant at which the unit was taken (7 bytes, us)
-- Reply  per tier the units in use, and the instant at which enough units expire, us, or 0; 7 bytes each

local NO_LEASE = '\0\0\0\0\0\0\0\0'

local LEAST = VALUE_HEAD_SIZE -- a shorter value is no counter

local records, put, remove, newest = deque()
local open_at, take, reserve, open_head -- created on demand

-- The units of the value that starts with `raw`.
local function units_of(key, raw, kind)
  local d = { key = key, width = 7, skip = 0, first = 0, last = 0, room = 0, low = 0, cached = 0 }
  if kind == SLOT_KIND then d.width, d.skip = 15, 8 end
  if #raw > 0 then d.room, d.first, d.last = parse(VALUE_HEAD, raw, 2) end
  d.base = VALUE_HEAD_SIZE + d.room
  if d.last > 0 and #raw >= d.base + d.last * d.width then
    d.page, d.cached = raw:sub(d.base + 1), d.last
  end
  return d
end

local function head_of(d, kind)
  return string.char(kind) .. pack(VALUE_HEAD, d.room, d.first, d.last)
end

-- The instant at which unit `index` was taken.
local function taken_at(d, index)
  if index < d.low or index >= d.cached then
    d.low = index - index % PAGE
    d.cached = min(d.low + PAGE, d.last)
    d.page = records(d, d.low, d.cached)
  end
  return (parse('>I7', d.page, (index - d.low) * d.width + d.skip + 1))
end

-- The first unit that was taken at `instant` or later, usually one of the oldest.
local function first_since(d, instant)
  local low, high, ahead = d.first, d.last, 0
  while low + ahead < high and taken_at(d, low + ahead) < instant do
    low, ahead = low + ahead + 1, 2 * ahead + 1
  end
  high = min(high, low + ahead)
  while low < high do
    local middle = floor((low + high) / 2)
    if taken_at(d, middle) < instant then low = middle + 1 else high = middle end
  end
  return low
end

-- Appends equal units. Returns the instant at which they count as taken.
local function add(d, now, id, count)
  -- At least the instant of the last unit. If the clock was set back, units stay a little longer.
  local at = now
  if d.first < d.last then at = max(now, taken_at(d, d.last - 1)) end
  local unit = pack('>I7', at)
  if d.skip > 0 then unit = id .. unit end
  put(d, d.last, unit:rep(count))
  d.last = d.last + count
  return at
end

-- Removes the newest `count` units of a lease, or as many as there are. Returns how many.
local function release(d, id, count)
  local gone, to = 0, d.last
  while gone < count do
    local at = newest(d, id, d.first, to)
    if not at then break end
    -- Units that were taken together are equal and adjacent, so they are removed in runs.
    local from, unit = at, records(d, at, at + 1)
    local run = min(from - d.first, count - gone - 1)
    while run > 0 do
      if records(d, from - run, from) == unit:rep(run) then
        from = from - run
        run = min(run, from - d.first, count - gone - (at + 1 - from))
      else
        run = floor(run / 2)
      end
    end
    gone = gone + (at + 1 - from)
    to = from + remove(d, from, at + 1)
  end
  return gone
end

-- Rewrites the value without removed units, and with room for `places` reservations.
local function rewrite(d, kind, open, places)
  local held, opened, room = records(d, d.first, d.last), '', 0
  if places > 0 then
    local live = records(open, open.first, open.last)
    open.first, open.last = 0, open.last - open.first
    opened, room = open_head(open) .. live, OPEN_HEAD_SIZE + places * open.width
  end
  d.first, d.last, d.cached = 0, d.last - d.first, 0
  d.room, d.base = room, VALUE_HEAD_SIZE + room
  call('SET', d.key, head_of(d, kind) .. opened .. ('\0'):rep(room - #opened) .. held)
end

-- Applies the steps of one run. Units are changed at once; the head with their positions, and the time
-- to live, are written once at the end.
local function run_general(key, argument, raw)
  local kind, tiers, act, count_denied, now, hits, at = parse(RUN_HEAD, argument)
  local tier_format = '>' .. ('I7'):rep(tiers * TIER)
  local foreign = #raw > 0 and raw:byte(1) ~= kind
  if foreign then raw = '' end
  local d, open = units_of(key, raw, kind), nil
  local wrote_at, longest_window -- instant of the last change, and the longest window of its tiers

  while true do
    local T = { parse(tier_format, argument, at) }
    at = T[tiers * TIER + 1]
    local id, ends = NO_LEASE, 0
    if act >= OPEN then id, ends, at = parse('>c8I7', argument, at) end
    if not open and (d.room > 0 or (act == OPEN and kind ~= SLOT_KIND)) then
      if not open_at then open_at, take, reserve, open_head = reservations() end
      open = open_at(key, d.room > 0 and raw or '', VALUE_HEAD_SIZE, 0)
    end

    local takes, allowed, passes, since = act ~= GIVE_BACK and act ~= CLOSE, true, '', {}
    local longest, most, live = 0, 0, d.last
    for i = 0, tiers - 1 do
      local t = i * TIER
      since[i] = first_since(d, T[t + 1])
      live, longest, most = min(live, since[i]), max(longest, T[t + 2]), max(most, T[t + 3])
      local fit = not takes or d.last - since[i] <= T[t + 3] - hits
      passes, allowed = passes .. (fit and PASS or FAIL), allowed and fit
    end

    local more, latest, wrote = 0, now, false -- units to add, and the instant at which they count as taken
    if takes then
      if allowed or count_denied == 1 then more = hits end
    elseif act == GIVE_BACK then
      local back = min(hits, d.last - live)
      d.last, wrote = d.last - back, back > 0
    elseif kind == SLOT_KIND then
      local first = d.first
      d.first = live
      wrote = release(d, id, hits) > 0
      if not wrote then d.first = first end
    elseif open then
      local made, charged = take(open, id, now)
      wrote = made ~= nil
      if made and hits > charged then
        more = hits - charged
      elseif made and hits < charged then
        -- Units of one instant are equal, so any of them may be removed.
        local last = first_since(d, made + 1)
        local back = min(last - first_since(d, made), charged - hits)
        remove(d, last - back, last)
      end
    end
    if more > 0 then
      if foreign then call('DEL', key) end
      d.first, wrote, foreign = live, true, false
      latest = add(d, now, id, min(more, most + 1))
      -- Denied and settled hits can exceed the limit. Of more than `most + 1` units the oldest affect no
      -- decision, so a flood of denied hits cannot grow the log.
      if kind ~= SLOT_KIND then d.first = max(d.first, d.last - (most + 1)) end
    elseif wrote and act == GIVE_BACK then
      d.first = live
    end

    local numbers = ''
    for i = 0, tiers - 1 do
      local t = i * TIER
      local window, room, leaves = T[t + 2], T[t + 3] - hits, 0
      if act == CLOSE then since[i] = first_since(d, T[t + 1]) end
      local oldest = max(d.first, min(since[i], d.last))
      local size = d.last - oldest
      if allowed then room = min(T[t + 3], size) - 1 end
      -- As many units must expire as there are more than `room`.
      local wait = min(size, max(size - room, 0))
      if wait > 0 then leaves = taken_at(d, oldest + wait - 1) + window end
      numbers = numbers .. pack('>I7I7', size, leaves)
    end
    answer(passes .. numbers)

    if wrote then
      wrote_at, longest_window = now, longest
      if act == OPEN and kind ~= SLOT_KIND and allowed then
        if open.base + (open.last + 1) * open.width > d.base then
          rewrite(d, kind, open, max(4, 2 * (open.last - open.first + 1)))
        end
        reserve(open, id, latest, ends, hits, '', now)
      end
    end
    if at > #argument then break end
    act, count_denied, now, hits, at = parse(HEAD, argument, at)
  end

  if not wrote_at then return end
  local opened = open and open.last - open.first or 0
  if d.first >= PAGE and d.first > d.last - d.first then
    rewrite(d, kind, open, 2 * opened)
  else
    call('SETRANGE', key, '0', head_of(d, kind))
  end
  local over = opened > 0 and open.ends or 0
  if d.first < d.last then over = max(over, taken_at(d, d.last - 1) + longest_window) end
  call('PEXPIRE', key, ttl(over, wrote_at))
end

local function run(key, argument, raw)
  if #argument == RUN_SIZE then
    local reply = run_one(key, argument, raw)
    if reply then return answer(reply) end
  end
  run_general(key, argument, raw)
end
