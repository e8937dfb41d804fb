-- What the specs share, and the check after each test that it left nothing open: objects on the event loop,
-- descriptors, child processes, sandboxes' directories; and that every agent that ended meanwhile ended well. busted
-- loads this file first (--helper); the specs say `require "helper"`.
local busted = require("busted")
local lfs = require("lfs")
local nsbx = require("nsbx")

local helper = {}
package.loaded.helper = helper

-- ---- the programs ----

local function output_of(command)
  local pipe <close> = assert(io.popen(command))
  return (pipe:read("a"):gsub("%s+$", ""))
end

helper.program = output_of("readlink /proc/$PPID/exe")
helper.agent_program = os.getenv("NSBX_AGENT") or helper.program:gsub("[^/]*$", "nsbx-agent")
helper.is_root = output_of("id -u") == "0"
helper.output_of = output_of

function helper.quote(text)
  return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

local function command_line(words)
  local quoted = {}
  for i, word in ipairs(words) do
    quoted[i] = helper.quote(word)
  end
  return table.concat(quoted, " ")
end

-- ---- files on the host, removed after the test ----

local litter = {}

-- A directory for one test.
function helper.tmpdir()
  local dir = output_of("mktemp -d")
  assert(dir ~= "", "mktemp -d made nothing")
  litter[#litter + 1] = dir
  return dir
end

function helper.write(path, bytes)
  local file <close> = assert(io.open(path, "wb"))
  assert(file:write(bytes))
  return path
end

function helper.read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read("a")
end

function helper.exists(path)
  return lfs.symlinkattributes(path, "mode") ~= nil
end

-- A recipe's file with this text.
function helper.recipe(text)
  return helper.write(helper.tmpdir() .. "/recipe.lua", text)
end

-- ---- other processes ----

-- Runs nsbx-lua with these words to its end: its exit status (128 + the signal when one killed it), stdout, stderr.
function helper.run(words, options)
  options = options or {}
  local dir = helper.tmpdir()
  helper.write(dir .. "/in", options.stdin or "")
  local line = ("%s %s %s <%s/in >%s/out 2>%s/err"):format(
    options.prefix or "", helper.quote(helper.program), command_line(words), dir, dir, dir)
  local _, how, code = os.execute(line)
  return how == "signal" and 128 + code or code, helper.read(dir .. "/out"), helper.read(dir .. "/err")
end

-- Starts a command line (shell syntax) and goes on: {pid, pipe}; its stdout and stderr come by pipe:read, its end by
-- helper.ended.
local started = {}
function helper.start(line)
  -- Signals that whoever runs the tests ignores would be ignored there too.
  local pipe = assert(io.popen(("echo $$; exec env --default-signal=INT,TERM,HUP %s 2>&1"):format(line)))
  local command = { pipe = pipe, pid = math.tointeger(pipe:read("n")) }
  pipe:read("l")
  started[command] = true
  return command
end

function helper.start_recipe(text)
  return helper.start(command_line({ helper.program, helper.recipe(text) }))
end

-- Reads a started command's output until a line is `wanted`; returns what came before.
function helper.read_until(command, wanted)
  local lines = {}
  for line in command.pipe:lines() do
    if line == wanted then
      return lines
    end
    lines[#lines + 1] = line
  end
  error(("'%s' did not come, but:\n%s"):format(wanted, table.concat(lines, "\n")))
end

function helper.signal(command, name)
  assert(os.execute(("kill -%s %d"):format(name, command.pid)))
end

-- The status as a shell has it, and the rest of the output.
function helper.ended(command)
  local rest = command.pipe:read("a")
  local _, how, code = command.pipe:close()
  started[command] = nil
  return how == "signal" and 128 + code or code, rest
end

-- How many processes of this machine have `mark` as an argument. The pattern is not the mark, or grep would count
-- itself.
function helper.processes_with(mark)
  local pattern = mark:gsub(".", "[%0]")
  return tonumber(output_of(("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx -- %s"):format(
    helper.quote(pattern))))
end

-- A number of seconds for `sleep` that no other process has. Not random: under a sanitizer, programs that start in the
-- same second draw the same numbers.
local sleeps = 0
local own_pid = assert(io.open("/proc/self/stat")):read("n")
function helper.mark()
  sleeps = sleeps + 1
  return ("3%03d.%d"):format(sleeps, own_pid)
end

function helper.eventually(condition, seconds)
  local deadline = nsbx.now() + (seconds or 5)
  repeat
    if condition() then
      return true
    end
    nsbx.sleep(0.01)
  until nsbx.now() > deadline
  return false
end

-- ---- sandboxes ----

function helper.sandbox(options)
  return nsbx.local_backend(options or {}):create({})
end

local agents = {}

-- An agent that runs on the host itself, in a workspace of its own, below the command `prefix` if one is given:
-- {path, workspace}. It is ended after the test, and must end well.
function helper.agent(prefix)
  local dir = helper.tmpdir()
  local workspace = dir .. "/workspace"
  assert(lfs.mkdir(workspace))
  local agent = helper.start(("NAMZU_AGENT_UNIX_PATH=%s/socket NAMZU_SANDBOX_WORKSPACE=%s %s %s"):format(
    dir, workspace, (prefix or ""):gsub("WORKSPACE", workspace), helper.quote(helper.agent_program)))
  agent.path, agent.workspace = dir .. "/socket", workspace
  agents[#agents + 1] = agent
  return agent
end

-- A guest that does as the JSON text `script` says (spec/support/scripted_guest.py): {path}.
local support = debug.getinfo(1, "S").source:match("^@(.*)helper%.lua$") .. "support/"
function helper.scripted_guest(script)
  local dir = helper.tmpdir()
  helper.write(dir .. "/script", script)
  local guest = helper.start(("python3 -IS %s %s/log %s/socket <%s/script"):format(
    helper.quote(support .. "scripted_guest.py"), dir, dir, dir))
  helper.read_until(guest, "ready")
  guest.path = dir .. "/socket"
  return guest
end

-- A sandbox over it, as soon as it listens.
function helper.connect(agent)
  local sb, err
  assert(helper.eventually(function()
    sb, err = nsbx.try(nsbx.connect, { unix_path = agent.path, root_dir = agent.workspace })
    return sb or err.code ~= "unreachable"
  end, 20), "the agent does not listen")
  return sb or error(err, 0)
end

-- ---- the check ----

-- Whatever makes sandboxes here makes them in a place of its own, where no other test's come and go.
local place = output_of("mktemp -d")
assert(os.execute("chmod 711 " .. place))
nsbx._debug.setenv("TMPDIR", place)

local agent_log = os.getenv("NSBX_AGENT_LOG")
local own_log = not agent_log or agent_log == ""
if own_log then
  agent_log = os.tmpname()
  nsbx._debug.setenv("NSBX_AGENT_LOG", agent_log)
end
helper.write(agent_log, "")
local log_read = 0

-- One sandbox's record: how it ended, and what was said on its stderr.
local function ended_well(code, signal, said)
  if said:find("Sanitizer", 1, true) or said:find("runtime error:", 1, true) then
    return false
  end
  -- bubblewrap that refuses has not come as far as an agent; what becomes of that is its spec's matter.
  return (code == "0" and signal == "0") or said:find("^bwrap: ") ~= nil
end

local function problems_of_agents()
  local text = helper.read(agent_log):sub(log_read + 1)
  log_read = log_read + #text
  if helper.agents_may_end_badly then
    return nil
  end
  local from = "local%-%S+: exit (%-?%d+) signal (%d+)\n"
  local at, code, signal
  repeat
    local first, last, next_code, next_signal = text:find("\n?" .. from, at or 1)
    if code and not ended_well(code, signal, text:sub(at, first)) then
      return "an agent did not end well:\n" .. text
    end
    at, code, signal = last and last + 1, next_code, next_signal
  until not first
  return nil
end

local function end_agents()
  local problem
  for _, agent in ipairs(agents) do
    os.execute(("kill -TERM %d 2>/dev/null"):format(agent.pid))
    local status, output = helper.ended(agent)
    if status ~= 0 or output:find("Sanitizer", 1, true) or output:find("runtime error:", 1, true) then
      problem = ("the agent on %s ended with %s:\n%s"):format(agent.path, status, output)
    end
  end
  agents = {}
  return not helper.agents_may_end_badly and problem or nil
end

local places = ("%s/nsbx-%s"):format(place, output_of("id -u"))

local function snapshot()
  local seen = {}
  for _, kind in ipairs(nsbx._debug.live()) do
    local name = "object: " .. kind
    seen[name] = (seen[name] or 0) + 1
  end
  for fd in lfs.dir("/proc/self/fd") do
    local target = lfs.symlinkattributes("/proc/self/fd/" .. fd, "target")
    if target and not target:find("^/proc/%d+/fd$") then
      seen["descriptor: " .. fd .. " of " .. target] = 1
    end
  end
  for task in lfs.dir("/proc/self/task") do
    local file = io.open("/proc/self/task/" .. task .. "/children")
    for pid in (file and file:read("a") or ""):gmatch("%d+") do
      seen["process: " .. pid] = 1
    end
    if file then
      file:close()
    end
  end
  if helper.exists(places) then
    for name in lfs.dir(places) do
      if name ~= "." and name ~= ".." then
        seen["directory: " .. places .. "/" .. name] = 1
      end
    end
  end
  return seen
end

local function left_over(before)
  local left = {}
  for name, count in pairs(snapshot()) do
    if count > (before[name] or 0) then
      left[#left + 1] = name
    end
  end
  table.sort(left)
  return left
end

local before

busted.subscribe({ "test", "start" }, function()
  helper.agents_may_end_badly = false
  collectgarbage()
  collectgarbage()
  before = snapshot()
  return nil, true
end)

busted.subscribe({ "test", "end" }, function()
  local problem = end_agents()
  for command in pairs(started) do -- of a test that failed
    os.execute("kill -KILL " .. command.pid)
    helper.ended(command)
  end
  for _, path in ipairs(litter) do
    os.execute("chmod -R u+rwX " .. helper.quote(path) .. " 2>/dev/null; rm -rf " .. helper.quote(path))
  end
  litter = {}
  local left
  helper.eventually(function()
    collectgarbage()
    collectgarbage()
    left = left_over(before)
    return #left == 0
  end)
  if #left > 0 then
    error("left open:\n  " .. table.concat(left, "\n  "), 0)
  end
  problem = problem or problems_of_agents()
  if problem then
    error(problem, 0)
  end
  return nil, true
end)

-- What was opened outside of a test ends here.
busted.subscribe({ "file", "end" }, function()
  local problem = problems_of_agents()
  if problem then
    error(problem, 0)
  end
  return nil, true
end)

busted.subscribe({ "suite", "end" }, function()
  os.execute("rm -rf " .. helper.quote(place) .. " " .. (own_log and helper.quote(agent_log) or ""))
  return nil, true
end)

nsbx.sleep(0) -- the event loop's own descriptors are there from now on
