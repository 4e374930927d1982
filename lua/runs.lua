-- Runs: calls a function for every run of a call, and collects the replies. Part of every script; the
-- parts of the kinds of state follow.

-- The reply so far.
local answers, answered

local function answer(bytes)
  answered = answered + 1
  answers[answered] = bytes
end

-- Calls `run` for every run, with its counter's value, at least up to byte `first_read_end`. A value that
-- is not empty and shorter than `least` is no counter. `first_value` is that of the first counter, or nothing if
-- it was not read yet.
local function run_all(run, first_read_end, least, keys, runs, first_value)
  answers, answered = {}, 0
  -- MGET returns nothing for a counter that is missing or unreadable, and fails if weir's user may not
  -- run it; such counters are read one by one. `unpack` takes seven times the largest call.
  local values = runs[#keys + 1] and pcall('MGET', unpack(keys)) or { first_value }
  for i = 1, #keys do
    local key, raw = keys[i], values[i]
    if not raw then raw = pcall('GETRANGE', key, '0', first_read_end) end
    if type(raw) == 'string' and #raw > 0 and #raw < least then
      raw = redis.error_reply('WRONGTYPE no counter of weir')
    end
    if type(raw) == 'string' then
      run(key, runs[i], raw)
    elseif #keys == 1 then
      return raw
    else
      answer(UNREADABLE)
    end
  end
  return table.concat(answers)
end
