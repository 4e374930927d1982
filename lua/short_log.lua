-- Short log: one step that takes hits of one tier, on a log of few units without reservations. It does the same
-- as entries.lua, which has all other cases and describes the value, without the tables and closures that these
-- need. Before entries.lua in its script. It writes the whole value, because one command costs Redis less than the
-- three that change a longer value in place.

-- The kind of concurrency, whose units are slots: the letter `s`.
local SLOT_KIND = 115
local TIER = 3
local VALUE_HEAD, VALUE_HEAD_SIZE = '>I4I4I4', 13
-- Most units of a short log before the step, and most hits. The value has 713 bytes then, which replicas get with
-- each hit. The three commands send them about 300 bytes.
local SHORT = 100

-- The last byte of the first read: more than a short log.
local FIRST_READ_END = '1023'
-- Bytes of a run with one step of one tier without a lease.
local RUN_SIZE = 18 + 7 * TIER

-- The instant at which unit `index` was taken.
local function instant_of(raw, index)
  return (parse('>I7', raw, VALUE_HEAD_SIZE + 7 * index + 1))
end

-- Returns the reply, or nothing if it does not apply.
local function run_one(key, argument, raw)
  local kind, _, act, count_denied, now, hits, since, window, limit =
    parse('>BBBBI7I7I7I7I7', argument)
  if act ~= TAKE or kind == SLOT_KIND or hits > SHORT then return end
  local first, last = 0, 0
  if raw ~= '' then
    if #raw < VALUE_HEAD_SIZE then return end
    local stored_kind, room, stored_first, stored_last = parse('>BI4I4I4', raw)
    if stored_kind ~= kind or room > 0 or stored_first > stored_last then return end
    if stored_last > SHORT or #raw < VALUE_HEAD_SIZE + 7 * stored_last then return end
    first, last = stored_first, stored_last
  end
  while first < last and instant_of(raw, first) < since do first = first + 1 end
  local size = last - first
  local allowed, taken = size <= limit - hits, now
  if hits > 0 and (allowed or count_denied == 1) then
    -- Both bounds are explained in entries.lua, at `add` and where it is called.
    if size > 0 then taken = max(now, instant_of(raw, last - 1)) end
    local count = min(hits, limit + 1)
    first = max(first, last + count - (limit + 1))
    size = last + count - first
    local kept = raw:sub(VALUE_HEAD_SIZE + 7 * first + 1, VALUE_HEAD_SIZE + 7 * last)
    local value = pack('>BI4I4I4', kind, 0, 0, size) .. kept .. pack('>I7', taken):rep(count)
    call('SET', key, value, 'PX', ttl(taken + window, now))
  end

  local room, leaves = allowed and min(limit, size) - 1 or limit - hits, 0
  -- As many units must expire as there are more than `room`.
  local wait = min(size, max(size - room, 0))
  if wait > 0 then
    local index = first + wait - 1
    leaves = (index < last and instant_of(raw, index) or taken) + window
  end
  return (allowed and PASS or FAIL) .. pack('>I7I7', size, leaves)
end
