-- Wrong arguments: refused at the caller's line, in words that say which and what would be right, before anything is
-- acquired.
local helper = require("helper")
local nsbx = require("nsbx")

describe("a wrong argument", function()
  local sb, process
  setup(function()
    sb = helper.sandbox()
    process = sb:spawn("sleep", { "1000" })
  end)
  teardown(function()
    process:close()
    sb:close()
  end)

  -- The line of the call is what the error must name.
  local function refused(message, f, ...)
    local ok, err = pcall(f, ...)
    assert.message(message).is_false(ok)
    assert.are.same({ "invalid", "InvalidError" }, { err.code, err.name })
    if message:sub(-3) == "…" then
      assert.are.equal(message:sub(1, -4), err.message:sub(1, #message - 3))
    else
      assert.are.equal(message, err.message)
    end
    return err
  end

  it("is refused at the caller's line", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local err = select(2, pcall(function() sb:exec("true", {}, { tiemout = 1 }) end))
    assert.are.equal(("spec/lua/argument_spec.lua:%d: "):format(line), err.where)
    assert.are.equal(err.where .. "exec: there is no option 'tiemout' (did you mean 'timeout'?)", tostring(err))
    line = debug.getinfo(1, "l").currentline + 1
    err = select(2, pcall(function() nsbx.all(1) end)) -- a flow in Lua
    assert.are.equal(("spec/lua/argument_spec.lua:%d: "):format(line), err.where)
    line = debug.getinfo(1, "l").currentline + 1
    err = select(2, pcall(function() nsbx.create({ timout = 1 }) end)) -- through a flow in Lua
    assert.are.equal(("spec/lua/argument_spec.lua:%d: "):format(line), err.where)
    assert.is_truthy(err.traceback:find("argument_spec.lua:" .. line, 1, true))
  end)

  it("names the nearest option, or all", function()
    refused("there is no option 'comand_timeout' (there are: …", sb.exec, sb, "x", {}, { comand_timeout = 1 })
    refused("there is no option 'evn' (did you mean 'env'?)", sb.exec, sb, "x", {}, { evn = {} })
    refused("there is no option 'Cwd' (did you mean 'cwd'?)", sb.exec, sb, "x", {}, { Cwd = "x" })
    refused("there is no option 'maxoutput' (did you mean 'max_output'?)", sb.exec, sb, "x", {}, { maxoutput = 1 })
    refused("there is no option 'on_output' (there are: …", sb.spawn, sb, "x", {}, { on_output = print })
    refused("there is no option 'readonly' (did you mean 'read_only'?)", nsbx.local_backend, { readonly = {} })
    refused("there is no option 'memory_per_proces' (did you mean 'memory_per_process'?)", nsbx.local_backend,
      { limits = { memory_per_proces = 1 } })
    refused("options have names; the table also has the key 1", sb.read_file, sb, "x", { "offset" })
    refused("options have names; the table also has the key true", sb.read_file, sb, "x", { [true] = 1 })
  end)

  it("is refused by its kind", function()
    refused("option 'timeout' must be a number of seconds, not a string", sb.exec, sb, "x", {}, { timeout = "1" })
    refused("option 'env' must be a table, not a string", sb.exec, sb, "x", {}, { env = "A=1" })
    refused("option 'check' must be true or false, not a number", sb.exec, sb, "x", {}, { check = 1 })
    refused("option 'on_output' must be a function, not a table", sb.exec, sb, "x", {}, { on_output = {} })
    refused("option 'stdin' must be a string, not a number", sb.exec, sb, "x", {}, { stdin = 5 })
    refused("option 'cwd' must not be empty", sb.exec, sb, "x", {}, { cwd = "" })
    refused("option 'cwd' must not hold a NUL byte", sb.exec, sb, "x", {}, { cwd = "a\0b" })
    refused("option 'max_output' must be an integer, not 1.5", sb.exec, sb, "x", {}, { max_output = 1.5 })
    refused("option 'wait' must be one of 'exit', 'pipes', not 'pipe'", sb.exec, sb, "x", {}, { wait = "pipe" })
    refused("the options must be a table, not a number", sb.read_file, sb, "x", 5)
    refused("argument 1 (path) is missing; it must be a string", sb.read_file, sb)
    refused("argument 1 (path) must be a string, not nil", sb.read_file, sb, nil)
    refused("argument 1 (path) must not be empty", sb.read_file, sb, "")
    refused("argument 2 (bytes) must be a string, not a table", sb.write_file, sb, "x", {})
    refused("argument 1 (function) must be a function, not a table", nsbx.spawn, {})
    refused("argument 1 (seconds) must be a number of seconds, not a string", nsbx.sleep, "1")
  end)

  it("that is out of range is refused, never clamped", function()
    for _, wrong in ipairs({ 0, -1, 1801, 1e308, math.huge, -math.huge, 0 / 0 }) do
      refused("option 'timeout' must be more than 0 and at most 1800 seconds, not …", sb.exec, sb, "x", {},
        { timeout = wrong })
    end
    refused("option 'max_output' must be between 1 and 9007199254740991, not 0", sb.exec, sb, "x", {},
      { max_output = 0 })
    refused("option 'offset' must be between 0 and 9007199254740991, not -1", sb.read_file, sb, "x", { offset = -1 })
    refused("option 'port' must be between 1 and 65535, not 65536", nsbx.connect, { host = "x", port = 65536 })
    refused("option 'processes' must be between 1 and …", nsbx.local_backend, { limits = { processes = 0 } })
    refused("option 'uid' must be between 1 and 4294967294, not 0", nsbx.local_backend, { uid = 0 })
    for _, wrong in ipairs({ -1, 1e10, math.huge, 0 / 0 }) do
      refused("argument 1 (seconds) must be between 0 and 1000000000 seconds, not …", nsbx.sleep, wrong)
    end
  end)

  it("of exec's grammar is explained", function()
    refused("argument 1 (command) is missing; it must be a string", sb.exec, sb)
    refused("argument 1 (command) must be a string, not a function", sb.exec, sb, print)
    refused("with a table alone a shell's line is run and must be there: exec{shell=\"…\"}; a command with "
      .. "arguments is exec(command, {arguments}, {options})", sb.exec, sb, { "ls", "-l" })
    refused("too many arguments; it is called as sandbox:exec{shell=…}", sb.exec, sb, { shell = "x" }, {})
    refused("too many arguments; it is called as sandbox:exec(command[, argv][, options])", sb.exec, sb, "x", {}, {}, 1)
    refused("argument 2 (argv or options) must be a table, not a string", sb.exec, sb, "ls", "-l")
    refused("the options must be a table, not a string", sb.exec, sb, "ls", {}, "-l")
    refused("the command's arguments must be a list without holes or names; options are a table of their own after it",
      sb.exec, sb, "ls", { "-l", cwd = "x" }, {})
    refused("argument 2 of the command must be a string or a number, not a boolean", sb.exec, sb, "ls", { "a", true })
    refused("argument 1 of the command must not hold a NUL byte", sb.exec, sb, "ls", { "a\0b" })
    refused("option 'env' must have names as keys, not a number", sb.exec, sb, "ls", {}, { env = { "A=1" } })
    refused("option 'env' has a name that is empty or holds '=' or NUL: 'A=B'", sb.exec, sb, "ls", {},
      { env = { ["A=B"] = 1 } })
    refused("the value of 'A' in option 'env' must be a string or a number, not a boolean", sb.exec, sb, "ls", {},
      { env = { A = true } })
    refused("the value of 'A' in option 'env' must not hold a NUL byte", sb.exec, sb, "ls", {}, { env = { A = "\0" } })
    refused("argument 1 (command) must not be empty", sb.exec, sb, "")
  end)

  it("of all, which has no options, is refused before a function of its list runs", function()
    local ran = false
    local list = { function() ran = true end }
    refused("too many arguments; it is called as nsbx.all(list) and has no options: …", nsbx.all, list, { timeout = 1 })
    refused("too many arguments; it is called as nsbx.all(list) and has no options: …", nsbx.all, list, nil)
    nsbx.sleep(0.01)
    assert.is_false(ran)
  end)

  it("of a signal is explained", function()
    for _, wrong in ipairs({ "NOSUCH", 0, 65, -9, 1.5, true }) do
      refused("argument 1 (signal) must be a signal's name or number, such as \"TERM\", not …", process.kill, process,
        wrong)
    end
    refused("option 'signal' must be a signal's name or number, such as \"TERM\", not 'X'", process.kill, process,
      { signal = "X" })
    refused("there is no option 'treee' (did you mean 'tree'?)", process.kill, process, { treee = true })
  end)

  it("of connect and the local backend is explained", function()
    refused("name the agent by 'unix_path', or by 'host' and 'port'", nsbx.connect, {})
    refused("name the agent by 'unix_path', or by 'host' and 'port'", nsbx.connect)
    refused("name the agent by 'unix_path', or by 'host' and 'port'", nsbx.connect, { host = "x" })
    refused("name the agent by 'unix_path', or by 'host' and 'port'", nsbx.connect,
      { unix_path = "/x", host = "x", port = 1 })
    refused("option 'carrier' must be one of 'auto', 'single', not 'mux'", nsbx.connect, { carrier = "mux" })
    refused("there is no limit 'memory': …", nsbx.local_backend, { limits = { memory = 1 } })
    refused("option 'read_only' must hold absolute paths: …", nsbx.local_backend, { read_only = { "relative" } })
    refused("option 'read_write' must hold absolute paths: …", nsbx.local_backend, { read_write = { x = "/x" } })
    refused("option 'read_write' must hold absolute paths: …", nsbx.local_backend, { read_write = { ["/x"] = 1 } })
  end)

  it("however often leaves nothing behind", function()
    local calls = {
      function() sb:exec("true", {}, { nonsense = 1 }) end,
      function() sb:exec("true", { {} }) end,
      function() sb:exec("true", {}, { env = { A = {} } }) end,
      function() sb:exec({}) end,
      function() sb:spawn("true", {}, { timeout = -1 }) end,
      function() sb:write_file("x", 1) end,
      function() sb:write_file("x", "y", { nonsense = 1 }) end,
      function() sb:read_file("x", { offset = "x" }) end,
      function() sb:read_file_stream("x", { offset = "x" }) end,
      function() sb:walk_files("x", { order = "x" }) end,
      function() sb:walk_files("x", { max_depth = 0 }) end,
      function() sb:walk_files("x", { max_entries = 0 }) end,
      function() sb:list_files({}) end,
      function() sb:destroy({ nonsense = 1 }) end,
      function() process:write(1) end,
      function() process:kill("x") end,
      function() process:wait({ timeout = "x" }) end,
      function() nsbx.spawn(1) end,
      function() nsbx.sleep({}) end,
      function() nsbx.connect({ unix_path = 1 }) end,
      function() nsbx.local_backend({ limits = { x = 1 } }) end,
      function() nsbx.is({}, "no such code") end,
    }
    local function state()
      collectgarbage()
      collectgarbage()
      local n = 0
      for _ in pairs(debug.getregistry()) do
        n = n + 1
      end
      return n, #nsbx._debug.live(), collectgarbage("count")
    end
    for _, call in ipairs(calls) do
      pcall(call)
    end
    local registry, live, memory = state()
    for i = 1, 250 do
      for _, call in ipairs(calls) do
        assert(not pcall(call), i)
      end
    end
    local registry_after, live_after, memory_after = state()
    assert.are.same({ registry, live }, { registry_after, live_after })
    assert.is_true(memory_after - memory < 256, memory_after - memory)
    assert.are.equal("busy", sb.status) -- the one process is all there is
  end)
end)

describe("an error", function()
  it("has a code, a name, a message, and where it came from", function()
    local sb <close> = helper.sandbox()
    local line = debug.getinfo(1, "l").currentline + 1
    local err = select(2, pcall(function() sb:read_file("nothing") end))
    assert.are.same({ "not_found", "NotFoundError", "read_file", sb.id, "ENOENT", false },
      { err.code, err.name, err.op, err.sandbox, err.errno, err.retryable })
    assert.is_truthy(err.message:find("nothing", 1, true))
    assert.is_truthy(err.traceback:find("argument_spec.lua:" .. line, 1, true))
    assert.are.equal(("spec/lua/argument_spec.lua:%d: read_file on %s: %s"):format(line, sb.id, err.message),
      tostring(err))
    assert.are.equal("error", nsbx.type(err))
  end)

  it("is asked by code or name", function()
    local err = select(2, pcall(nsbx.sleep, -1))
    assert.is_true(nsbx.is(err))
    assert.is_true(nsbx.is(err, "invalid"))
    assert.is_true(nsbx.is(err, "InvalidError"))
    assert.is_false(nsbx.is(err, "timeout"))
    assert.is_false(nsbx.is("invalid", "invalid"))
    assert.is_false(nsbx.is({ code = "invalid" }, "invalid"))
    assert.is_false(nsbx.is(nil))
    local ok, wrong = pcall(nsbx.is, err, "invalidd")
    assert.is_false(ok)
    assert.are.equal("there is no error 'invalidd' (did you mean 'invalid'?)", wrong.message)
  end)

  it("is turned into a value by nsbx.try", function()
    assert.are.same({ 1, nil, 3, n = 3 }, table.pack(nsbx.try(function(...) return ... end, 1, nil, 3)))
    local value, err = nsbx.try(nsbx.sleep, -1)
    assert.is_nil(value)
    assert.are.equal("invalid", err.code)
    assert.are.same({ nil, "mine", n = 2 }, table.pack(nsbx.try(error, "mine")))
    local task = nsbx.spawn(function() return nsbx.try(function()
      nsbx.sleep(0.001)
      return "waited"
    end) end)
    assert.are.equal("waited", task:join())
  end)
end)
