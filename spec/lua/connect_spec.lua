-- nsbx.connect: a sandbox over an agent that already runs somewhere. #agent
local helper = require("helper")
local nsbx = require("nsbx")

describe("connect #agent", function()
  it("by a unix socket gives a sandbox that does everything", function()
    local agent = helper.agent()
    local sb <close> = helper.connect(agent)
    assert.are.same({ "unix:" .. agent.path, "ready", agent.workspace, "agent", "single" },
      { sb.id, sb.status, sb.root_dir, sb.environment, sb.carrier })
    assert.is_nil(sb.workspace)
    assert.are.equal(agent.workspace .. "\n", sb:exec("pwd").stdout)
    sb:write_file("a/b", "text")
    assert.are.equal("text", helper.read(agent.workspace .. "/a/b"))
    assert.are.equal("text", sb:read_file("a/b"))
    assert.are.equal(agent.workspace .. "/a", sb:list_files(".")[1].path)
    for entry in sb:walk_files(".") do
      assert.are.equal(agent.workspace .. "/a/b", entry.path)
    end
  end)

  it("reaches an agent that was started without standard descriptors", function()
    local agent = helper.agent("sh -c 'exec \"$@\" <&- >&- 2>&-' sh")
    local sb <close> = helper.connect(agent)
    local r = sb:exec({ shell = "cat; echo out; echo err >&2", stdin = "in" })
    assert.are.same({ "inout\n", "err\n" }, { r.stdout, r.stderr })
    sb:write_file("f", "text")
    assert.are.equal("text", sb:read_file("f"))
  end)

  it("is left by destroy, which ends what it started and nothing else", function()
    local agent = helper.agent()
    local mine, others = helper.mark(), helper.mark()
    local other <close> = helper.connect(agent)
    local process <close> = other:spawn("sleep", { others })
    local sb = helper.connect(agent)
    local held = { sb:spawn("sleep", { mine }), sb:spawn({ shell = "setsid sleep " .. mine .. " & sleep " .. mine }) }
    local task = nsbx.spawn(function() return pcall(sb.exec, sb, "sleep", { mine }) end)
    assert.is_true(helper.eventually(function() return helper.processes_with(mine) == 4 end))
    sb:destroy()
    assert.are.equal(0, helper.processes_with(mine))
    assert.are.equal(1, helper.processes_with(others))
    assert.are.equal("destroyed", sb.status)
    local ok, what = task:join({ timeout = 5 }) -- the truth: what ended it, or that it is over
    assert.is_truthy(ok and what.signal or what.code)
    assert.are.equal("there\n", other:exec("echo", { "there" }).stdout)
    assert.are.equal("busy", other.status)
    assert.is_truthy(process and held)
  end)

  it("to nobody fails in its time, and says where", function()
    local dir = helper.tmpdir()
    local begin = nsbx.now()
    local ok, err = pcall(nsbx.connect, { unix_path = dir .. "/none", timeout = 0.3 })
    assert.is_false(ok)
    assert.are.equal("unreachable", err.code)
    assert.is_true(err.retryable)
    assert.is_truthy(err.message:find("No such file", 1, true), err)
    assert.are.equal("unix:" .. dir .. "/none", err.sandbox)
    assert.is_true(nsbx.now() - begin < 3)
  end)

  it("to a port where nobody listens says so within its time", function()
    local begin = nsbx.now()
    local ok, err = pcall(nsbx.connect, { host = "127.0.0.1", port = 1, timeout = 3 })
    assert.are.same({ false, "unreachable" }, { ok, err.code })
    assert.is_truthy(err.message:find("refused", 1, true), err)
    assert.is_true(nsbx.now() - begin < 10)
  end)

  it("to an agent that does not answer fails", function()
    local agent = helper.agent()
    helper.connect(agent):close() -- it is up
    os.execute("kill -STOP " .. agent.pid)
    local ok, err = pcall(nsbx.connect, { unix_path = agent.path, timeout = 0.3 })
    os.execute("kill -CONT " .. agent.pid)
    assert.are.same({ false, "timeout" }, { ok, err.code })
  end)

  it("loses its agent in the middle of a file, and its iterator says so", function()
    local agent = helper.agent()
    local sb = helper.connect(agent)
    sb:exec("truncate", { "-s", "200M", "big" }, { check = true })
    helper.agents_may_end_badly = true
    local got = 0
    local ok, err = pcall(function()
      for chunk in sb:read_file_stream("big") do
        if got == 0 then
          os.execute("kill -KILL " .. agent.pid)
        end
        got = got + #chunk
      end
    end)
    assert.is_false(ok)
    assert.message(tostring(err)).are.equal("stream_lost", err.code)
    assert.is_true(got < 200 << 20)
    pcall(sb.destroy, sb)
  end)

  it("loses its agent, and says so, and does not hang", function()
    local agent = helper.agent()
    local sb = helper.connect(agent)
    local process = sb:spawn("sh", { "-c", "echo up; sleep 100" })
    local reader = nsbx.spawn(function()
      for _, line in process:lines() do
        assert.are.equal("up", line)
      end
      return "ended"
    end)
    local running = nsbx.spawn(function() return sb:exec("sleep", { "100" }) end)
    nsbx.sleep(0.2)
    helper.agents_may_end_badly = true
    os.execute("kill -KILL " .. agent.pid)
    for _, task in ipairs({ reader, running }) do
      local ok, err = pcall(task.join, task, { timeout = 30 })
      assert.is_false(ok) -- never an end that nobody has seen
      assert.is_truthy(({ stream_lost = true, unknown_outcome = true, unreachable = true })[err.code], err)
    end
    process:close()
    pcall(sb.destroy, sb)
    assert.are.equal("destroyed", sb.status)
  end)
end)
