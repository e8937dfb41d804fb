-- The one shape of objects, for every type: closed twice, used after its close, given the wrong self, collected while
-- something is under way, kept alive by what hangs on it.
local helper = require("helper")
local nsbx = require("nsbx")

local backend, sb

-- One of each type, open; how it is used; and whether closing it ends more than itself.
local types = {
  {
    noun = "task",
    make = function() return nsbx.spawn(nsbx.sleep, 0.01) end,
    methods = { "join", "cancel", "status" },
    stays = true, -- a task that ended can still be asked
  },
  { noun = "backend", make = function() return nsbx.local_backend() end, methods = { "create" } },
  {
    noun = "sandbox",
    make = function() return backend:create() end,
    methods = { "exec", "spawn", "write_file", "read_file", "read_file_stream", "list_files", "walk_files" },
    arguments = { exec = { "true" }, spawn = { "true" }, write_file = { "x", "y" }, other = { "x" } },
    closed = "the sandbox was destroyed",
  },
  {
    noun = "process",
    make = function() return sb:spawn("sleep", { "100" }) end,
    methods = { "write", "close_stdin", "output", "lines", "wait", "kill" },
    arguments = { write = { "x" } },
  },
  { noun = "file stream", make = function() return (select(2, sb:read_file_stream("file"))) end, methods = {} },
  { noun = "walk", make = function() return (select(2, sb:walk_files("."))) end, methods = {} },
}

describe("objects", function()
  setup(function()
    backend = nsbx.local_backend({})
    sb = backend:create({})
    sb:write_file("file", ("x"):rep(1 << 20))
  end)
  teardown(function() sb:close() end)

  for _, t in ipairs(types) do
    describe("of type " .. t.noun, function()
      local function arguments(method)
        return table.unpack(t.arguments and (t.arguments[method] or t.arguments.other) or {})
      end

      it("say what they are", function()
        local object <close> = t.make()
        assert.are.equal(t.noun, nsbx.type(object))
        local name = "nsbx." .. t.noun:gsub(" ", "_")
        assert.are.equal(name, getmetatable(object).__name)
        assert.is_truthy(tostring(object):find(name .. " (", 1, true) == 1, tostring(object))
      end)

      it("are closed once, however often", function()
        local object = t.make()
        object:close()
        object:close()
        getmetatable(object).__close(object)
        getmetatable(object).__gc(object)
        if not t.stays and t.noun ~= "sandbox" then
          assert.are.equal("nsbx." .. t.noun:gsub(" ", "_") .. " (closed)", tostring(object))
        end
      end)

      it("are closed by leaving their block", function()
        local kept
        do
          local object <close> = t.make()
          kept = object
        end
        if t.noun == "task" then
          assert.is_truthy(({ done = true, cancelled = true })[kept:status()])
        elseif t.noun == "sandbox" then
          assert.are.equal("destroyed", kept.status)
        else
          assert.is_truthy(tostring(kept):find("(closed)", 1, true))
        end
      end)

      if not t.stays then
        it("refuse to be used after that, in these words", function()
          local object = t.make()
          object:close()
          for _, method in ipairs(t.methods) do
            local ok, err = pcall(object[method], object, arguments(method))
            assert.message(method).is_false(ok)
            assert.are.same({ "destroyed", t.closed or ("the " .. t.noun .. " is closed"), method },
              { err.code, err.message, err.op })
          end
        end)
      end

      it("refuse the wrong self, in these words", function()
        local object <close> = t.make()
        local stranger <close> = t.noun == "backend" and nsbx.spawn(nsbx.sleep, 0) or nsbx.local_backend()
        for _, method in ipairs(t.methods) do
          for _, wrong in ipairs({ 1, "x", {}, io.stdout, stranger }) do
            local ok, err = pcall(object[method], wrong, arguments(method))
            assert.is_false(ok)
            assert.are.equal("invalid", err.code)
            local kind = ({ number = "a number", string = "a string", table = "a table" })[type(wrong)] or "a userdata"
            assert.are.equal(("the first argument must be a %s, not %s (call it as %s:%s(…))"):format(
              t.noun, kind, t.noun, method), err.message)
          end
        end
      end)

      it("may be collected at any time", function()
        for _ = 1, 3 do
          t.make()
        end
        collectgarbage()
        collectgarbage()
        assert.are.equal("ready", helper.eventually(function() return sb.status == "ready" end, 10) and sb.status)
      end)
    end)
  end

  it("keep alive what they hang on", function()
    local process <close> = nsbx.create():spawn("sh", { "-c", "read x; echo $x" })
    for _ = 1, 3 do
      collectgarbage()
    end
    nsbx.sleep(0.05)
    process:write("alive\n")
    for _, line in process:lines() do
      assert.are.equal("alive", line)
    end
  end)

  it("have no method for what they cannot do", function()
    assert.is_nil(sb.open_terminal)
    assert.is_nil(sb.extend)
    assert.is_nil(sb.set_network_policy)
    assert.is_nil(backend.list)
    local process <close> = sb:spawn("true")
    assert.is_nil(process.detach)
  end)

  it("tell what they are by their fields", function()
    assert.is_truthy(sb.id:match("^local%-%x+%-%x+%-4%x+%-%x+%-%x+$"))
    assert.are.same({ "ready", "/workspace", "linux-namespace", "single" },
      { sb.status, sb.root_dir, sb.environment, sb.carrier })
    assert.is_true(sb.features["exec-bytes"])
    assert.is_nil(sb.features["no-such-thing"])
    assert.is_nil(sb.nothing)
    assert.is_nil(sb[1])
    assert.is_true(helper.exists(sb.workspace .. "/file"))
    assert.is_false(pcall(function() sb.id = "other" end))
  end)
end)

describe("a sandbox", function()
  it("that is destroyed is so for all, and again is nothing", function()
    local own = helper.sandbox()
    local workspace = own.workspace
    local process = own:spawn("sleep", { "100" })
    local others = {}
    for i, call in ipairs({
      function() return own:exec("sleep", { "100" }) end,
      function() return process:wait() end,
      function()
        for _ in process:output() do -- luacheck: ignore
        end
      end,
    }) do
      others[i] = nsbx.spawn(pcall, call)
    end
    nsbx.sleep(0.1)
    own:destroy()
    own:destroy()
    own:close()
    assert.are.equal("destroyed", own.status)
    assert.is_false(helper.exists(workspace))
    for _, task in ipairs(others) do
      local ok, err = task:join({ timeout = 5 })
      assert.is_false(ok)
      assert.message(tostring(err)).are.equal("destroyed", err.code)
    end
    local ok, err = pcall(process.wait, process)
    assert.is_false(ok)
    assert.are.equal("destroyed", err.code)
    process:close()
    assert.is_truthy(own.id)
  end)

  it("is destroyed by two tasks at once, and both know it", function()
    local own = helper.sandbox()
    nsbx.all({ function() own:destroy() end, function() own:destroy() end })
    assert.are.equal("destroyed", own.status)
  end)

  it("is destroyed though its task is cancelled meanwhile", function()
    local own, workspace
    local task = nsbx.spawn(function()
      local sandbox <close> = helper.sandbox()
      own, workspace = sandbox, sandbox.workspace
      nsbx.sleep(100)
    end)
    assert.is_true(helper.eventually(function() return own ~= nil end))
    task:cancel()
    nsbx.sleep(0)
    task:cancel()
    pcall(task.join, task)
    assert.are.equal("destroyed", own.status)
    assert.is_false(helper.exists(workspace))
  end)

  it("whose creation is cancelled or overdue leaves nothing", function()
    helper.agents_may_end_badly = true -- one that never answered is killed
    local task = nsbx.spawn(helper.sandbox)
    nsbx.sleep(0.002)
    task:cancel()
    local ok, err = pcall(task.join, task)
    assert.are.same({ false, "cancelled" }, { ok, err.code })
    ok, err = pcall(function() return nsbx.local_backend():create({ timeout = 0.001 }) end)
    assert.are.same({ false, "timeout" }, { ok, err.code })
  end)

  -- From this program down: the keeper, bubblewrap, the agent.
  for depth, name in ipairs({ "nsbx-keeper", "bwrap", "nsbx-agent" }) do
    it("whose " .. name .. " is killed says so to all, at once", function()
      local function children(pid)
        local list = {}
        local pids = helper.output_of(("cat /proc/%s/task/*/children 2>/dev/null"):format(pid))
        for child in pids:gmatch("%d+") do
          list[child] = true
        end
        return list
      end
      local others = children("$PPID")
      local own <close> = helper.sandbox()
      local process <close> = own:spawn("sleep", { "100" })
      local task = nsbx.spawn(pcall, own.exec, own, "sleep", { "100" })
      nsbx.sleep(0.1)
      local pid
      for child in pairs(children("$PPID")) do
        if not others[child] and helper.exists("/proc/" .. child) then -- the shell that listed them was one, too
          pid = child
        end
      end
      for _ = 2, depth do
        pid = next(children(assert(pid)))
      end
      local comm = helper.output_of(("cat /proc/%s/comm"):format(assert(pid)))
      assert.are.equal(name, comm)
      helper.agents_may_end_badly = true
      assert(os.execute("kill -KILL " .. pid))
      local begin = nsbx.now()
      local ok, err = task:join({ timeout = 20 })
      assert.message(tostring(err)).are.same({ false, "gone" }, { ok, err.code })
      ok, err = pcall(process.wait, process)
      assert.are.same({ false, "gone" }, { ok, err.code })
      for _, operation in ipairs({ own.read_file, own.exec, own.list_files, own.spawn }) do
        ok, err = pcall(operation, own, "x")
        assert.message(tostring(err)).are.same({ false, "gone" }, { ok, err.code })
      end
      assert.are.equal("destroyed", own.status)
      assert.is_true(nsbx.now() - begin < 5)
    end)
  end

  it("runs its commands where its working_directory says", function()
    local own <close> = nsbx.create({ working_directory = "src" })
    assert.are.equal("/workspace/src\n", own:exec("pwd").stdout)
    assert.are.equal("/workspace\n", own:exec("pwd", { cwd = "/workspace" }).stdout)
    local process <close> = own:spawn("pwd")
    for _, line in process:lines() do
      assert.are.equal("/workspace/src", line)
    end
  end)
end)

describe("nsbx.create", function()
  it("makes what nsbx.configure says", function()
    local status, out, err = helper.run({ "-e", [[
      local nsbx = require "nsbx"
      nsbx.configure{backend = "local", limits = {open_files = 77}}
      local sb <close> = nsbx.create{}
      io.write(sb:exec{shell = "ulimit -n"}.stdout)
    ]] })
    assert.message(err).are.equal(0, status)
    assert.are.equal("77\n", out)
  end)

  it("refuses a backend that is not there", function()
    local status, _, err = helper.run({ "-e", "require 'nsbx'.create{}" }, { prefix = "NSBX_BACKEND=cluster" })
    assert.are.equal(1, status)
    assert.is_truthy(err:find("there is no backend 'cluster' (there are: 'local')", 1, true))
    local ok, e = pcall(nsbx.configure, { backend = "x" })
    assert.are.same({ false, "invalid" }, { ok, e.code })
  end)
end)
