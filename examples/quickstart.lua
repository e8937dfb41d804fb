-- A tour of one local sandbox, each step with its proof: scripts/run examples/quickstart.lua
local nsbx = require "nsbx"

local function step(title)
  print("\n" .. title)
end

local function show(what, value)
  print(("  %-34s %s"):format(what, value))
end

-- How many processes of this machine, seen from outside of any sandbox, have `word` on their command line.
local function on_the_host(word)
  local count = 0
  local processes <close> = assert(io.popen("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"))
  for line in processes:lines() do
    count = count + (line == word and 1 or 0)
  end
  return count
end

step("A sandbox on this machine")
local sb <close> = nsbx.create{} -- destroyed when this file ends, on an error and on Ctrl-C too
local workspace = sb.workspace
show("its name", sb.id)
show("its workspace, from inside", sb.root_dir)
show("and from the host", workspace)

step("Who it is")
local status = sb:exec("cat", {"/proc/self/status"}).stdout
show("uid inside", status:match("Uid:%s*(%d+)"))
for _, mask in ipairs{"CapInh", "CapPrm", "CapEff", "CapBnd"} do
  local bits = status:match(mask .. ":%s*(%x+)")
  assert(tonumber(bits, 16) == 0, "the sandbox has a capability")
  show("capabilities, " .. mask, bits)
end
assert(status:match("NoNewPrivs:%s*1"), "the sandbox could gain privileges")
show("no_new_privs", 1)
local interfaces = sb:exec{shell = "grep -o '[a-z0-9]*:' /proc/net/dev | tr -d :"}.stdout
assert(interfaces == "lo\n", "the sandbox has a network")
show("network interfaces", "lo, its own, and no other")
local home = os.getenv("HOME") or "/root"
assert(sb:exec("ls", {home}).exit_code ~= 0, "the sandbox sees the host's home")
show("the host's home, " .. home, "not there")

step("A file is written")
sb:write_file("notes/words.txt", "one\ntwo\nthree\n")
show("bytes in notes/words.txt", sb:list_files("notes")[1].size)

step("A command's output, as it appears")
local begin = nsbx.now()
local process <close> = sb:spawn{shell = "while read w; do sleep 0.2; echo $w; done < notes/words.txt | tee loud.txt"}
for stream, line in process:lines() do
  show(("%s after %.1f s"):format(stream, nsbx.now() - begin), line)
end
show("it exited with", process:wait().exit_code)

step("The file is read back")
show("loud.txt", (sb:read_file("loud.txt"):gsub("\n", " ")))

step("A tree is walked, until one has seen enough")
sb:exec({shell = "mkdir -p tree/a tree/b && touch tree/1 tree/a/2 tree/a/3 tree/b/4", check = true})
local seen = 0
for entry in sb:walk_files("tree", {order = "sorted"}) do
  show(entry.path, entry.size .. " bytes")
  seen = seen + 1
  if seen == 2 then
    break -- ends the walk in the sandbox too
  end
end

step("A command outlives its timeout")
local pid = io.open("/proc/self/stat"):read("n")
local seconds = ("1000.%d"):format(pid) -- a word that no other process has
local slow = nsbx.spawn(function()
  return sb:exec({shell = ("setsid sleep %s & sleep %s"):format(seconds, seconds), timeout = 1})
end)
repeat
  nsbx.sleep(0.05)
until on_the_host(seconds) == 2 or slow:status() == "done"
show("running: it and its setsid child", on_the_host(seconds))
local result = slow:join()
assert(result.timed_out and on_the_host(seconds) == 0, "something outlived its timeout")
show("timed out, ended by", result.signal)
show("left of it and its child", on_the_host(seconds))

step("It is destroyed, and nothing of it is left")
sb:exec({shell = "setsid sleep " .. seconds .. " &"}) -- something that still runs
show("processes before", on_the_host(seconds))
sb:destroy()
assert(on_the_host(seconds) == 0 and not io.open(workspace), "something of the sandbox is left")
show("processes after", on_the_host(seconds))
show("its workspace on the host", "gone")
show("its status", sb.status)
