-- Quota: the shares of one quota, by holder. Twin of src/quota/ledger.rs, and the last part of its script.
--
-- keys[1]  a quota
-- runs[1]  the instant (us), requests, window and grace (us), 7 bytes each; then the changes, encoded by
--          src/store/redis/quota.rs: per change its holder's id, and 7 bytes each: the share that it should
--          have, the share that it has if it is new, its want, and until when it uses the share, us
-- Value    the letter `q`; requests and window (us) of the limit whose parts the shares are, 7 bytes each, 0
--          if there was none; then the holdings
-- HOLDING  the id of its holder (16 bytes, its client first), and 7 bytes each: share; the larger share that it
--          had before, or 0, and until when it may use that, us; the instant from which it uses nothing, us;
--          its want
-- Returns  every holding, in any order. A value that is no string, or too long, is an error, and nothing is
--          written.

local HEAD, CHANGE, HOLDING, RATE = '>I7I7I7I7', '>c16I7I7I7I7', '>c16I7I7I7I7I7', '>I7I7'
local LETTER, VALUE_HEAD_SIZE, HOLDING_SIZE, CHANGE_SIZE = 'q', 15, 51, 44
local SHARES, HELD_MAX, HOLDERS_MAX = 1000000000, 900000000000, 10000
local IN_PLACE_MAX = 64 -- more changed holdings are written with the whole value

-- A part of one limit as a part of another one: at least share * up / down, and at most 2 more.
local function converted(share, up, down)
  if share == 0 or share >= HELD_MAX then return share end
  return min(1 - floor(-(share * up / down)), up < down and share or HELD_MAX)
end

local function settle(key, argument)
  local now, requests, window, grace, at = parse(HEAD, argument)
  local size = pcall('STRLEN', key)
  if type(size) ~= 'number' then return size end
  if size > VALUE_HEAD_SIZE + HOLDERS_MAX * HOLDING_SIZE then
    return redis.error_reply('ERR too long for a quota of weir')
  end
  local raw = call('GETRANGE', key, '0', '-1')
  local is_whole = size >= VALUE_HEAD_SIZE and (size - VALUE_HEAD_SIZE) % HOLDING_SIZE == 0
  if not is_whole or raw:sub(1, 1) ~= LETTER then raw, size = '', 0 end

  local old_requests, old_window, up, down = 0, 0, 1, 1
  if size > 0 then old_requests, old_window = parse(RATE, raw, 2) end
  if requests == 0 or window == 0 then
    requests, window = old_requests, old_window
  elseif old_requests > 0 and old_window > 0 then
    up, down = old_requests * window, requests * old_window
  end

  -- The holders that the changes name. `places` has the indexes of their holdings, from 0.
  local named, places = {}, {}
  for start = at, #argument, CHANGE_SIZE do named[argument:sub(start, start + 15)] = true end

  -- `fresh` has the holdings that are not as in `raw`, by index, and `gone` those that are removed.
  local fresh, freshened, gone, removed = {}, 0, {}, 0
  local places_end, sum, last = 0, 0, 0
  for start = VALUE_HEAD_SIZE + 1, size, HOLDING_SIZE do
    local id, share, old, ends, expires, want = parse(HOLDING, raw, start)
    local place = places_end
    places_end = place + 1
    if expires <= now then
      gone[place], removed = true, removed + 1
    else
      local share_before, old_before = share, old
      if up ~= down then share, old = converted(share, up, down), converted(old, up, down) end
      if ends <= now then old = 0 end
      if share ~= share_before or old ~= old_before then
        fresh[place], freshened = pack(HOLDING, id, share, old, ends, expires, want), freshened + 1
      end
      if named[id] then places[id] = place end
      sum, last = sum + max(share, old), max(last, expires)
    end
  end

  local function put(place, holding)
    if not fresh[place] then freshened = freshened + 1 end
    fresh[place] = holding
  end

  local function record(place)
    local start = VALUE_HEAD_SIZE + place * HOLDING_SIZE
    return fresh[place] or raw:sub(start + 1, start + HOLDING_SIZE)
  end

  -- The number of holders of each client, the first half of an id. They are counted only when one client might
  -- have as many as are left.
  local numbers
  local function has_room(id)
    local count = places_end - removed
    local left = HOLDERS_MAX - count
    if count < left then return true end
    if not numbers then
      numbers = {}
      for place = 0, places_end - 1 do
        if not gone[place] then
          local client = record(place):sub(1, 8)
          numbers[client] = (numbers[client] or 0) + 1
        end
      end
    end
    return (numbers[id:sub(1, 8)] or 0) < left
  end

  -- New holders first, with what they already have, so that no raise takes it.
  for start = at, #argument, CHANGE_SIZE do
    local id, _, held, want, expires = parse(CHANGE, argument, start)
    if not places[id] and expires > now and has_room(id) then
      local share = min(held, SHARES)
      put(places_end, pack(HOLDING, id, share, 0, 0, expires, want))
      places[id], places_end = places_end, places_end + 1
      sum, last = sum + share, max(last, expires)
      if numbers then
        local client = id:sub(1, 8)
        numbers[client] = (numbers[client] or 0) + 1
      end
    end
  end

  for start = at, #argument, CHANGE_SIZE do
    local id, wanted, _, want, expires = parse(CHANGE, argument, start)
    local place = places[id]
    if place then
      local _, share, old, ends, expires_before = parse(HOLDING, record(place))
      -- A change that ends before the stored instant arrived after a newer one.
      if expires >= expires_before then
        local others = sum - max(share, old)
        -- A raise gets at most what the others leave, and a holder keeps what it has until it is lowered.
        local given = min(wanted, max(SHARES - others, share))
        if given < share then old, ends = max(share, old), max(ends, now + grace) end
        if ends <= now then old = 0 end
        put(place, pack(HOLDING, id, given, old, ends, expires, want))
        sum, last = others + max(given, old), max(last, expires)
      end
    end
  end

  local has_new_rate = requests ~= old_requests or window ~= old_window
  if removed == 0 and freshened == 0 and not has_new_rate then return raw:sub(VALUE_HEAD_SIZE + 1) end
  local kept_ms = ttl(last, now)
  if size > 0 and removed == 0 and freshened <= IN_PLACE_MAX then
    if has_new_rate then call('SETRANGE', key, '1', pack(RATE, requests, window)) end
    for place, holding in pairs(fresh) do
      call('SETRANGE', key, VALUE_HEAD_SIZE + place * HOLDING_SIZE, holding)
    end
    call('PEXPIRE', key, kept_ms)
    return call('GETRANGE', key, VALUE_HEAD_SIZE, '-1')
  end
  local holdings, count = {}, 0
  for place = 0, places_end - 1 do
    if not gone[place] then
      count = count + 1
      holdings[count] = record(place)
    end
  end
  local reply = table.concat(holdings)
  call('SET', key, LETTER .. pack(RATE, requests, window) .. reply, 'PX', kept_ms)
  return reply
end
