-- Globals: sets the locals of protocol.lua. A script does so at once. The library does so in its first
-- call, because Redis loads it without these globals.
call, pcall, pack, parse = redis.call, redis.pcall, struct.pack, struct.unpack
floor, max, min = math.floor, math.max, math.min
