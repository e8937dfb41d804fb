-- From create to the first answer: `create_bench.lua COUNT` prints "p50 p99" in microseconds. Then it holds one more
-- sandbox until its standard input ends, so that scripts/bench can see with which options bubblewrap was started.
local nsbx = require("nsbx")
local count = tonumber(arg[1])

local backend <close> = nsbx.local_backend({})
local took = {}
for i = 1, count do
  local begin = nsbx.now()
  local sb = backend:create({})
  took[i] = nsbx.now() - begin
  sb:destroy()
end
table.sort(took)
local held <close> = backend:create({}) -- luacheck: ignore
print(("%.1f %.1f"):format(took[count // 2 + 1] * 1e6, took[count * 99 // 100] * 1e6))
io.stdout:flush()
io.read("a")
