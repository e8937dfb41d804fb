-- exec of /bin/true: `exec_bench.lua RUNS COUNT` prints "p50 p99" in microseconds for each run, then the kilobytes of
-- memory that the agent holds when idle.
local nsbx = require("nsbx")
local runs, count = tonumber(arg[1]), tonumber(arg[2])

local backend <close> = nsbx.local_backend({})
local sb <close> = backend:create({})

local function rss_of_agent()
  local status = sb:exec("cat", { "/proc/1/status" }, { check = true }).stdout
  return status:match("VmRSS:%s*(%d+) kB")
end

local idle = rss_of_agent()
for _ = 1, runs do
  local took = {}
  for i = 1, count do
    local begin = nsbx.now()
    local result = sb:exec("/bin/true")
    took[i] = nsbx.now() - begin
    assert(result.exit_code == 0, "/bin/true failed")
  end
  table.sort(took)
  print(("%.1f %.1f"):format(took[count // 2 + 1] * 1e6, took[count * 99 // 100] * 1e6))
end
print(idle)
