-- Moving BYTES out of a sandbox: `stream_bench.lua stdout|file BYTES` prints "MB/s, peak kB of the host, peak kB of the
-- agent". stdout: of a command; file: by read_file_stream.
local nsbx = require("nsbx")
local what, bytes = arg[1], math.tointeger(arg[2])

local backend <close> = nsbx.local_backend({ limits = {} })
local sb <close> = backend:create({})
local got = 0
local begin

local function take_stdout()
  begin = nsbx.now()
  local process <close> = sb:spawn("head", { "-c", tostring(bytes), "/dev/zero" }, { max_output = bytes + 1 })
  for stream, chunk in process:output() do
    assert(stream == "stdout", chunk)
    got = got + #chunk
  end
end

local function take_file()
  local path = sb.root_dir .. "/big"
  sb:exec("sh", { "-c", 'head -c "$1" /dev/zero >"$2"', "sh", tostring(bytes), path }, { check = true })
  begin = nsbx.now()
  for chunk in sb:read_file_stream(path) do
    got = got + #chunk
  end
end

local function peak(status)
  return tonumber(status:match("VmHWM:%s*(%d+) kB"))
end

if what == "stdout" then
  take_stdout()
else
  take_file()
end
local took = nsbx.now() - begin
assert(got == bytes, ("%d of %d bytes arrived"):format(got, bytes))
local own = io.open("/proc/self/status"):read("a")
local agent = sb:exec("cat", { "/proc/1/status" }, { check = true }).stdout
print(("%.0f %d %d"):format(bytes / 1e6 / took, peak(own), peak(agent)))
