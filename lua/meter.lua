-- Meter: the law of the machines whose state has a fixed size per tier. Last part of count, pair and
-- tat; twin of src/step/meter.rs. All tiers are checked first, then all are written; a refusal, a peek
-- and a refund that finds nothing write nothing.
--
-- Value: the machine's letter, the number of tiers (1 byte each), STATE numbers per tier (7 bytes
-- each), then the reservations if any are open.

-- Longer than a value of the most tiers, 16, with the head of its reservations.
local ENOUGH = '511'

local function step(key, argument, reply)
  local act, count_denied, kind, tiers, now, hits = parse(HEAD, argument)
  local T = { parse('>' .. ('I7'):rep(tiers * TIER), argument, TIERS_AT) }
  local numbers, size = '>' .. ('I7'):rep(tiers * STATE), 2 + 7 * tiers * STATE
  local raw = call('GETRANGE', key, '0', ENOUGH)
  local S = {}
  if #raw >= size and raw:byte(1) == kind and raw:byte(2) == tiers then
    S = { parse(numbers, raw, 3) }
  else
    raw = '' -- of another machine or another number of tiers: nothing is known
  end
  for i = 0, tiers - 1 do turn(T, i * TIER, S, i * STATE) end
  local open, open_at, take, reserve, id, ends
  if #raw > size or act == OPEN then
    open_at, take, reserve = reservations()
    open = open_at(key, raw, size, tiers * COSTS)
  end
  if act >= OPEN then id, ends = parse('>c8I7', argument, T[tiers * TIER + 1]) end

  -- What each tier answers takes one place more than its state.
  local before, width, allowed, changed, taken = #reply, STATE + 1, true, false, false
  if act == CLOSE then
    local made, charged, record
    if open then made, charged, record = take(open, id, now) end
    taken = made ~= nil
    for i = 0, taken and tiers - 1 or -1 do
      local cost, part, drained = 0, 0, 0
      if COSTS > 0 then
        cost, part, drained = parse('>I7I7I7', record, RECORD_SIZE + 1 + 21 * i)
      end
      local t, s = i * TIER, i * STATE
      changed = settle(T, t, S, s, hits, made, charged, cost, part, drained) or changed
    end
  elseif act == GIVE_BACK then
    for i = 0, tiers - 1 do changed = refund(T, i * TIER, S, i * STATE, hits) or changed end
  else
    for i = 0, tiers - 1 do
      local passes = fits(T, i * TIER, S, i * STATE, hits)
      reply[before + i * width + 1] = passes and 1 or 0
      allowed = allowed and passes
    end
    if hits > 0 and (allowed or count_denied == 1) then
      for i = 0, tiers - 1 do changed = charge(T, i * TIER, S, i * STATE, hits) or changed end
    end
  end

  for i = 0, tiers - 1 do
    local at = before + i * width + 1
    reply[at] = reply[at] or 1
    for j = 1, STATE do reply[at + j] = S[i * STATE + j] end
  end
  if not (changed or taken) then return end
  -- What only time has changed stays as it was.
  if not changed then S = { parse(numbers, raw, 3) } end
  local over = 0
  for i = 0, tiers - 1 do over = max(over, expires(T, i * TIER, S, i * STATE)) end
  local state = pack('>BB', kind, tiers) .. pack(numbers, unpack(S, 1, tiers * STATE))
  if not open or (open.first == open.last and act ~= OPEN) then
    call('SET', key, state, 'PX', ttl(over, now))
    return
  end
  if #raw > size then call('SETRANGE', key, 0, state)
  else call('SET', key, state, 'PX', ttl(over, now)) end
  if act == OPEN and allowed then
    local made, costs = now, ''
    for i = 0, tiers - 1 do
      local t = i * TIER
      made = max(made, latest(S, i * STATE))
      if COSTS > 0 then
        local drained = expires(T, t, S, i * STATE)
        costs = costs .. pack('>I7I7I7', T[t + COST], T[t + COST + 1], drained)
      end
    end
    reserve(open, id, made, ends, hits, costs, now)
  end
  call('PEXPIRE', key, ttl(max(over, open.ends), now))
end

local reply = {}
for i = 1, #KEYS do step(KEYS[i], ARGV[i], reply) end
return reply
