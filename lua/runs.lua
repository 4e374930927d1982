-- Runs: calls a function for every run of a call, and collects the replies. Part of every script; the
-- parts of the kinds of state follow.

-- The reply so far.
local answers, answered

local function answer(bytes)
  answered = answered + 1
  answers[answered] = bytes
end

-- Calls `run` for one counter. `raw` is its value, at least up to byte `first_read_end`, or nothing if it was not
-- read yet. A value that is not empty and shorter than `least` is no counter. Returns the error of an unreadable
-- counter.
local function run_checked(run, first_read_end, least, key, argument, raw)
  if not raw then raw = pcall('GETRANGE', key, '0', first_read_end) end
  if type(raw) == 'string' and #raw > 0 and #raw < least then
    raw = redis.error_reply('WRONGTYPE no counter of weir')
  end
  if type(raw) ~= 'string' then
    answer(UNREADABLE)
    return raw
  end
  run(key, argument, raw)
end

local run_group -- fixed_window alone has it: see repeated.lua

-- Calls `run` for every run, and `run_group` for every group. `first_value` is the value of the first counter, or
-- nothing if it was not read yet.
local function run_all(run, first_read_end, least, keys, runs, first_value)
  answers, answered = {}, 0
  -- MGET returns nothing for a counter that is missing or unreadable, and fails if weir's user may not
  -- run it; such counters are read one by one. `unpack` takes seven times the largest call.
  local values = #runs ~= #keys and pcall('MGET', unpack(keys)) or {}
  if #runs < #keys then
    local sizes, at, last, size = runs[#runs], 1, 0
    for group = 1, #runs - 1 do
      size, at = parse('>I2', sizes, at)
      run_group(runs[group], keys, last + 1, last + size, values)
      last = last + size
    end
    return table.concat(answers)
  end
  for i = 1, #keys do
    local key, raw = keys[i], values[i]
    if raw and #raw >= least then
      run(key, runs[i], raw)
    else
      local failed = run_checked(run, first_read_end, least, key, runs[i], raw or first_value)
      if failed and #keys == 1 then return failed end
    end
  end
  return table.concat(answers)
end
