-- Deque: records of equal width in the key's string, changed in place. Adding and removing writes only
-- the records that move, so 100 000 records cost no more per hit than ten. Part of every script. Rust
-- uses VecDeque of the standard library.
--
-- A deque d has the records d.first up to, but not including, d.last. Each has d.width bytes; record 0
-- starts at byte d.base. Records before d.cached were read and are unchanged.

-- Records per read in a search.
local PAGE = 64

-- Creates the functions on demand, because most calls need none.
local function deque()
  local function records(d, from, to)
    return call('GETRANGE', d.key, d.base + from * d.width, d.base + to * d.width - 1)
  end

  local function put(d, at, bytes)
    call('SETRANGE', d.key, d.base + at * d.width, bytes)
    d.cached = min(d.cached or 0, at)
  end

  -- Removes records [from, to) by moving the shorter side. Returns how far the records before moved.
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

  -- Index of the newest record in [from, to) that starts with `id`.
  local function newest(d, id, from, to)
    local size = PAGE
    while from < to do
      local low = max(from, to - size)
      local page, found = records(d, low, to), nil
      local at = page:find(id, 1, true)
      while at do
        if (at - 1) % d.width == 0 then found = (at - 1) / d.width end
        at = page:find(id, at + 1, true)
      end
      if found then return low + found end
      to, size = low, 4 * size
    end
  end

  return records, put, remove, newest
end
