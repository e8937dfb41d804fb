-- Ctrl-C, SIGTERM and SIGHUP end a recipe, its sandboxes and their processes. #user
local helper = require("helper")
local nsbx = require("nsbx")

local signals = { INT = 130, TERM = 143, HUP = 129 }

describe("a signal #user", function()
  for name, status in pairs(signals) do
    it(name .. " ends the sandbox, its processes and the recipe", function()
      local mark = helper.mark()
      local recipe = helper.start_recipe(([[
        local nsbx = require "nsbx"
        local sb <close> = nsbx.create{}
        local closer <close> = setmetatable({}, {__close = function(_, e)
          print("closing", e.code, e.reason, sb:exec("echo", {"still there"}).stdout)
        end})
        sb:exec("sh", {"-c", "setsid sleep %s & :"})
        nsbx.spawn(function() sb:exec("sleep", {"%s"}) end)
        nsbx.spawn(function()
          nsbx.sleep(.3)
          print(sb.workspace)
          print("ready") io.stdout:flush()
        end)
        sb:exec("sleep", {"%s"})
      ]]):format(mark, mark, mark))
      local lines = helper.read_until(recipe, "ready")
      assert.are.equal(3, helper.processes_with(mark))
      assert.is_true(helper.exists(lines[#lines]))
      helper.signal(recipe, name)
      local got, rest = helper.ended(recipe)
      assert.message(rest).are.equal(status, got)
      assert.are.equal(0, helper.processes_with(mark))
      assert.is_false(helper.exists(lines[#lines]))
      assert.is_truthy(rest:find("closing\tcancelled\tSIG" .. name .. "\tstill there", 1, true), rest)
      assert.is_truthy(rest:find("nsbx-lua: interrupted\n", 1, true), rest)
    end)
  end

  it("from a terminal goes to the whole group, and the sandbox lives until the recipe is done with it", function()
    local file = helper.recipe([[
      local nsbx = require "nsbx"
      local sb <close> = nsbx.create{}
      local closer <close> = setmetatable({}, {__close = function()
        print("closing", sb:exec("echo", {"still there"}).stdout)
      end})
      nsbx.spawn(function() print "ready" io.stdout:flush() end)
      sb:exec("sleep", {"100"})
    ]])
    local recipe = helper.start("setsid " .. helper.quote(helper.program) .. " " .. file)
    helper.read_until(recipe, "ready")
    assert(os.execute(("/bin/kill -INT -- -%d"):format(recipe.pid)))
    local status, rest = helper.ended(recipe)
    assert.message(rest).are.equal(130, status)
    assert.is_truthy(rest:find("closing\tstill there\n", 1, true), rest)
  end)

  it("is acted on at once while the main chunk waits alone", function()
    for name, status in pairs(signals) do
      local recipe = helper.start_recipe([[
        local nsbx = require "nsbx"
        local sb <close> = nsbx.create{}
        io.stdout:write("ready\n") io.stdout:flush()
        sb:exec("sleep", {"100"})
      ]])
      helper.read_until(recipe, "ready")
      nsbx.sleep(0.5) -- until it waits, with nothing else to happen
      local begin = nsbx.now()
      helper.signal(recipe, name)
      assert.are.equal(status, (helper.ended(recipe)))
      assert.is_true(nsbx.now() - begin < 15) -- the last resort comes after 30
    end
  end)

  it("of a reader that went away does so too", function()
    local tmp = helper.tmpdir()
    assert(os.execute("chmod 755 " .. tmp))
    local file = helper.recipe([[
      local nsbx = require "nsbx"
      local sb <close> = nsbx.create{}
      while true do
        print(sb:exec("echo", {"a line"}).stdout)
        io.stdout:flush()
      end
    ]])
    local status = helper.output_of(("bash -c 'TMPDIR=%s %s %s 2>%s/err | head -1 >/dev/null; echo ${PIPESTATUS[0]}'")
      :format(tmp, helper.quote(helper.program), file, tmp))
    assert.message(helper.read(tmp .. "/err")).are.equal("141", status)
    assert.are.equal("", helper.output_of("ls -A " .. tmp .. "/nsbx-*"))
  end)

  it("at any moment of a sandbox's life leaves nothing of it", function()
    helper.agents_may_end_badly = true -- one that has not answered yet is killed
    for i = 1, 8 do
      local recipe = helper.start_recipe([[
        local nsbx = require "nsbx"
        print "ready" io.stdout:flush()
        while true do
          local sb <close> = nsbx.create{}
          sb:exec("true")
        end
      ]])
      helper.read_until(recipe, "ready")
      nsbx.sleep(0.007 * i)
      helper.signal(recipe, "INT")
      local status, rest = helper.ended(recipe)
      assert.message(rest).are.equal(130, status)
      assert.are.equal("nsbx-lua: interrupted\n", rest)
    end
  end)

  it("ends a recipe that computes, in the main chunk and in a task", function()
    for _, text in ipairs({
      "print 'ready' io.stdout:flush() while true do end",
      "print 'ready' io.stdout:flush() repeat local n = (n or 0) + 1 until false",
      "nsbx.spawn(function() print 'ready' io.stdout:flush() while true do end end)",
    }) do
      local recipe = helper.start_recipe([[
        local nsbx = require "nsbx"
        local closer <close> = setmetatable({}, {__close = function() print "closed" end})
      ]] .. text)
      helper.read_until(recipe, "ready")
      helper.signal(recipe, "INT")
      local status, rest = helper.ended(recipe)
      assert.are.equal(130, status)
      assert.is_truthy(rest:find("nsbx-lua: interrupted\n", 1, true), rest)
    end
  end)

  it("ends a recipe that never loaded nsbx", function()
    local recipe = helper.start_recipe("print 'ready' io.stdout:flush() while true do end")
    helper.read_until(recipe, "ready")
    helper.signal(recipe, "INT")
    local status, rest = helper.ended(recipe)
    assert.are.equal(130, status)
    assert.are.equal("nsbx-lua: interrupted\n", rest)
  end)

  it("leaves its status even when the recipe swallows the error", function()
    local recipe = helper.start_recipe([[
      local nsbx = require "nsbx"
      nsbx.spawn(function() print "ready" io.stdout:flush() end) -- when the main chunk waits
      local ok, err = pcall(nsbx.sleep, 100)
      nsbx.sleep(.01) -- its grace
      print(ok, err.code)
    ]])
    helper.read_until(recipe, "ready")
    helper.signal(recipe, "TERM")
    local status, rest = helper.ended(recipe)
    assert.are.equal(143, status)
    assert.are.equal("false\tcancelled\nnsbx-lua: interrupted\n", rest)
  end)

  it("given twice ends a recipe that does not want to", function()
    local mark = helper.mark()
    local recipe = helper.start_recipe(([[
      local nsbx = require "nsbx"
      local sb <close> = nsbx.create{}
      local process = sb:spawn("sleep", {"%s"})
      nsbx.spawn(function() print "ready" io.stdout:flush() end)
      while true do pcall(nsbx.sleep, 100) end
    ]]):format(mark))
    helper.read_until(recipe, "ready")
    helper.agents_may_end_badly = true
    helper.signal(recipe, "INT")
    nsbx.sleep(0.2)
    helper.signal(recipe, "INT")
    local begin = nsbx.now()
    local status = helper.ended(recipe)
    assert.are.equal(130, status)
    assert.is_true(nsbx.now() - begin < 2)
    -- No one was left to destroy the sandbox: the lifeline did, and the next create removes its files.
    assert.is_true(helper.eventually(function() return helper.processes_with(mark) == 0 end))
    helper.sandbox():destroy()
  end)

  it("ends a task that goes on after its grace, at a wait", function()
    local recipe = helper.start_recipe([[
      local nsbx = require "nsbx"
      nsbx.spawn(function()
        local closer <close> = setmetatable({}, {__close = function() print "closed" end})
        while true do pcall(nsbx.sleep, 100) end
      end)
      nsbx.spawn(function() print "ready" io.stdout:flush() end)
      nsbx.sleep(100)
    ]])
    helper.read_until(recipe, "ready")
    helper.signal(recipe, "TERM")
    local begin = nsbx.now()
    local status, rest = helper.ended(recipe)
    assert.are.equal(143, status)
    assert.is_truthy(rest:find("closed", 1, true))
    local took = nsbx.now() - begin
    assert.is_true(took > 4 and took < 9, took)
  end)

  it("that was ignored when the program started stays ignored", function()
    local file = helper.recipe([[
      print "ready" io.stdout:flush()
      require "nsbx".sleep(.5)
      print "survived"
    ]])
    local recipe = helper.start("--ignore-signal=HUP " .. helper.quote(helper.program) .. " " .. file)
    helper.read_until(recipe, "ready")
    helper.signal(recipe, "HUP")
    local status, rest = helper.ended(recipe)
    assert.are.equal(0, status)
    assert.are.equal("survived\n", rest)
  end)
end)
