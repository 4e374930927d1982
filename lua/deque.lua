-- Deque: records of one width in the key's string, in place. Adding and removing writes only what
-- moves, so a counter of 100 000 records costs no more per hit than one of ten. Part of every script;
-- the Rust twin's is the standard library's.
--
-- A deque d has records d.first up to d.last (not with it), each d.width bytes, the first at byte d.base;
-- what is before d.cached of them has been read and still holds.

-- Records read at once while searching.
local PAGE = 64

-- The functions, made only where they are needed: most calls need none.
local function deque()
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
