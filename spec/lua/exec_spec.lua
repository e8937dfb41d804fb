-- sandbox:exec: its grammar, its options, its result. #agent
local helper = require("helper")
local nsbx = require("nsbx")

describe("exec #agent", function()
  local sb
  setup(function() sb = helper.sandbox() end)
  teardown(function() sb:close() end)

  local function sh(line, options)
    options = options or {}
    options.shell = line
    return sb:exec(options)
  end

  it("runs a command with its arguments, and gives all of the result", function()
    local result = sb:exec("printf", { "%s|%s|", "a b", 5 })
    assert.is_true(result.duration >= 0 and result.duration < 60)
    result.duration = nil
    assert.are.same({
      exit_code = 0,
      stdout = "a b|5|",
      stderr = "",
      timed_out = false,
      stdout_truncated = false,
      stderr_truncated = false,
      pipes_open = false,
      maybe_lossy = false,
    }, result)
  end)

  it("takes a command alone, with arguments, with options, with both", function()
    assert.are.equal("/workspace\n", sb:exec("pwd").stdout)
    assert.are.equal("x\n", sb:exec("echo", { "x" }).stdout)
    assert.are.equal("/tmp\n", sb:exec("pwd", { cwd = "/workspace/../workspace" }).stdout:gsub("/workspace", "/tmp"))
    assert.are.equal("x y\n", sb:exec("echo", { "x", "y" }, { timeout = 10 }).stdout)
    assert.are.equal("x\n", sb:exec("cat", nil, { stdin = "x\n" }).stdout)
    assert.are.equal("x\n", sb:exec("cat", {}, { stdin = "x\n" }).stdout)
    assert.are.equal("\n", sb:exec("echo", {}).stdout)
  end)

  it("runs a shell's line", function()
    assert.are.equal("a\n", sb:exec({ shell = "echo a b | cut -d' ' -f1" }).stdout)
    assert.are.equal("hi\n", sh("cat <<'X'\nhi\nX\n").stdout)
  end)

  it("keeps stdout and stderr apart, or together in their order", function()
    local result = sh("echo out; echo err >&2")
    assert.are.same({ "out\n", "err\n" }, { result.stdout, result.stderr })
    result = sh("echo 1; sleep .1; echo 2 >&2; sleep .1; echo 3", { combine = true })
    assert.are.same({ "1\n2\n3\n", "" }, { result.stdout, result.stderr })
  end)

  it("gives each exit code", function()
    for code = 0, 255, 15 do
      assert.are.equal(code, sh("exit " .. code).exit_code)
    end
    assert.are.equal(255, sh("exit 255").exit_code)
  end)

  it("names the signal that ended a command", function()
    for _, name in ipairs({ "TERM", "KILL", "SEGV", "USR1" }) do
      local result = sh("kill -" .. name .. " $$")
      assert.are.same({ -1, "SIG" .. name, false }, { result.exit_code, result.signal, result.timed_out })
    end
    for number, name in pairs({ [32] = "SIG32", [34] = "SIGRTMIN", [35] = "SIGRTMIN+1", [64] = "SIGRTMAX" }) do
      local result = sh("kill -" .. number .. " $$")
      assert.are.same({ -1, name }, { result.exit_code, result.signal })
    end
  end)

  it("says that a command was lost, and goes on", function()
    local begun = nsbx.now()
    local result, err = nsbx.try(sh, "kill -9 $PPID; sleep 100")
    assert.is_nil(result)
    assert.are.same({ "stream_lost", "execution_lost" }, { err.code, err.reason })
    assert.is_true(nsbx.now() - begun < 1)
    assert.are.equal(3, sh("exit 3").exit_code)
  end)

  it("sets variables and the directory", function()
    local result = sb:exec("env", { env = { ONE = 1, TWO = "a b=c", EMPTY = "" } })
    assert.is_truthy(result.stdout:find("ONE=1\n", 1, true))
    assert.is_truthy(result.stdout:find("TWO=a b=c\n", 1, true))
    assert.is_truthy(result.stdout:find("EMPTY=\n", 1, true))
    sb:exec("mkdir", { "-p", "some/where" }, { check = true })
    assert.are.equal("/workspace/some/where\n", sb:exec("pwd", { cwd = "some/where" }).stdout)
    assert.are.equal("/workspace/some\n", sb:exec("pwd", { cwd = "/workspace/some" }).stdout)
  end)

  it("feeds stdin, any bytes, and ends it", function()
    local bytes = {}
    for i = 0, 255 do
      bytes[#bytes + 1] = string.char(i)
    end
    local text = table.concat(bytes):rep(1000)
    assert.are.equal(#text .. "\n", (sb:exec("wc", { "-c" }, { stdin = text }).stdout))
    assert.is_true(sb:exec("cat", { stdin = text }).stdout == text)
    assert.are.equal("", sb:exec("cat", { stdin = "" }).stdout)
    assert.are.equal("", sb:exec("cat").stdout)
  end)

  it("ends a command at its timeout, with everything that it started", function()
    local mark = helper.mark()
    local begin = nsbx.now()
    local result = sh(("setsid sleep %s & (setsid sleep %s &) ; sleep %s"):format(mark, mark, mark), { timeout = 0.3 })
    assert.are.same({ true, -1 }, { result.timed_out, result.exit_code })
    assert.is_truthy(result.signal)
    assert.is_true(nsbx.now() - begin < 10)
    assert.are.equal(0, helper.processes_with(mark))
  end)

  it("returns when the command has ended, though something holds its pipes", function()
    local mark = helper.mark()
    local begin = nsbx.now()
    local result = sh("sleep " .. mark .. " & echo ok")
    assert.are.same({ 0, "ok\n", true }, { result.exit_code, result.stdout, result.pipes_open })
    assert.is_true(nsbx.now() - begin < 2)
    assert.are.equal(1, helper.processes_with(mark))
    sb:exec("pkill", { "-f", mark })
  end)

  it("waits for the pipes when told so", function()
    local result = sh("(sleep .5; echo late) & echo early", { wait = "pipes" })
    assert.are.same({ "early\nlate\n", false }, { result.stdout, result.pipes_open })
  end)

  it("cuts output at max_output, and says so", function()
    local result = sh("head -c 100000 /dev/zero; head -c 10 /dev/zero >&2", { max_output = 1000 })
    assert.are.same({ 1000, true, 10, false },
      { #result.stdout, result.stdout_truncated, #result.stderr, result.stderr_truncated })
  end)

  it("tells on_output what comes as it comes, and gives it in the result too", function()
    local pieces, times = {}, {}
    local result = sh("echo 1; sleep .3; echo 2 >&2; sleep .3; printf 3", {
      on_output = function(stream, bytes)
        pieces[#pieces + 1] = stream .. ":" .. bytes
        times[#times + 1] = nsbx.now()
        nsbx.sleep(0.001) -- may wait
      end,
    })
    assert.are.same({ "stdout:1\n", "stderr:2\n", "stdout:3" }, pieces)
    assert.is_true(times[2] - times[1] > 0.1 and times[3] - times[2] > 0.1)
    assert.are.same({ "1\n3", "2\n", 0 }, { result.stdout, result.stderr, result.exit_code })
    assert.are.equal("1\n2\n",
      sh("echo 1; sleep .1; echo 2 >&2", { combine = true, on_output = function() end }).stdout)
  end)

  it("ends the command when on_output raises", function()
    local mark = helper.mark()
    local ok, err = pcall(sh, "echo go; sleep " .. mark, { on_output = function() error("enough", 0) end })
    assert.are.same({ false, "enough" }, { ok, err })
    assert.are.equal(0, helper.processes_with(mark))
  end)

  it("with check raises what is no success, with the result", function()
    assert.are.equal("ok\n", sb:exec("echo", { "ok" }, { check = true }).stdout)
    local ok, err = pcall(sh, "echo some; echo 'what went wrong' >&2; exit 3", { check = true })
    assert.is_false(ok)
    assert.are.same({ "refused", "CommandFailedError", "exit_code", 3, "some\n" },
      { err.code, err.name, err.reason, err.result.exit_code, err.result.stdout })
    assert.is_truthy(err.message:find("exited with code 3: what went wrong", 1, true))
    assert.is_true(nsbx.is(err, "CommandFailedError"))
    err = select(2, pcall(sh, "kill -KILL $$", { check = true }))
    assert.are.same({ "refused", "signal", "SIGKILL" }, { err.code, err.reason, err.result.signal })
    err = select(2, pcall(sh, "sleep 100", { check = true, timeout = 0.2 }))
    assert.are.same({ "timeout", "timed_out", true }, { err.code, err.reason, err.result.timed_out })
    err = select(2, pcall(sh, "exit 4", { check = true, on_output = function() end }))
    assert.are.equal(4, err.result.exit_code)
  end)

  it("ends the command when its task is cancelled, before the task gets the error", function()
    local mark = helper.mark()
    local left
    local task = nsbx.spawn(function()
      local ok, err = pcall(sb.exec, sb, "sleep", { mark })
      left = helper.processes_with(mark)
      return ok, err.code
    end)
    assert.is_true(helper.eventually(function() return helper.processes_with(mark) == 1 end))
    assert.are.equal("busy", sb.status)
    task:cancel()
    assert.are.same({ false, "cancelled" }, { task:join() })
    assert.are.equal(0, left)
    assert.are.equal("ready", sb.status)
  end)

  it("of a cancelled task runs nothing", function()
    local task
    task = nsbx.spawn(function()
      task:cancel()
      return pcall(sb.exec, sb, "touch", { "must-not-be-there" })
    end)
    assert.is_false((task:join()))
    assert.are_not.equal(0, sb:exec("ls", { "must-not-be-there" }).exit_code)
  end)

  it("runs a hundred at a time", function()
    local jobs = {}
    for i = 1, 100 do
      jobs[i] = function()
        local result = sb:exec("sh", { "-c", "sleep 0.1; echo $0; exit $1", i, i % 7 }, { timeout = 60 })
        assert(result.exit_code == i % 7, result.exit_code)
        return result.stdout
      end
    end
    for i, out in ipairs(nsbx.all(jobs)) do
      assert.are.equal(i .. "\n", out)
    end
  end)

  it("works inside a coroutine of a task's own making, and where Lua cannot yield", function()
    local task = nsbx.spawn(function()
      local out = {}
      for value in coroutine.wrap(function()
        for i = 1, 2 do
          coroutine.yield(sb:exec("echo", { i }).stdout)
        end
      end) do
        out[#out + 1] = value
      end
      table.sort({ 2, 1 }, function(a, b)
        out[3] = sb:exec("echo", { "sorted" }).stdout
        return a < b
      end)
      return table.concat(out)
    end)
    assert.are.equal("1\n2\nsorted\n", task:join())
  end)
end)
