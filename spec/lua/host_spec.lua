-- nsbx-lua as a program: its command line, its exit status, what it says when a recipe fails, and how a recipe ends.
local helper = require("helper")

describe("nsbx-lua", function()
  local function check(words, status, stdout, stderr, options)
    local got_status, got_out, got_err = helper.run(words, options)
    assert.message(got_err).are.equal(status, got_status)
    assert.are.equal(stdout, got_out)
    if stderr then
      assert.is_truthy(got_err:find(stderr, 1, true), got_err)
    else
      assert.are.equal("", got_err)
    end
  end

  describe("runs", function()
    it("a file, with its arguments in arg and …", function()
      local file = helper.recipe([[print(#arg, arg[0], arg[1], arg[2], select("#", ...), ...)]])
      check({ file, "a", "b c" }, 0, "2\t" .. file .. "\ta\tb c\t2\ta\tb c\n")
    end)

    it("standard input, as - and as nothing", function()
      check({ "-", "x" }, 0, "x\t-\n", nil, { stdin = "print(..., arg[0])" })
      check({}, 0, "piped\n", nil, { stdin = "print 'piped'" })
    end)

    it("-e, in order, before the file and in the same state", function()
      local file = helper.recipe("print(x, y)")
      check({ "-e", "x = 1", "-ey = x + 1", file }, 0, "1\t2\n")
      check({ "-e", "print(x)" }, 0, "nil\n")
    end)

    it("with the program and its options at negative indices of arg", function()
      local file = helper.recipe("print(arg[-1], arg[-2], arg[-3] == arg[-4], arg[-4])")
      check({ "-e", "a=1", file }, 0, ("a=1\t-e\tfalse\tnil\n"))
      local _, out = helper.run({ "-e", "print(arg[0], arg[-1], arg[-2])" })
      assert.are.equal("nil\tprint(arg[0], arg[-1], arg[-2])\t-e\n", out)
    end)

    it("a file with a # line, and one with a byte order mark", function()
      check({ helper.recipe("#!/usr/bin/env nsbx-lua\nprint 'ran'") }, 0, "ran\n")
      check({ helper.recipe("\239\187\191#!x\nprint 'ran'") }, 0, "ran\n")
      check({ helper.recipe("\239\187\191print 'ran'") }, 0, "ran\n")
    end)

    it("a file whose name begins with a dash, after --", function()
      local dir = helper.tmpdir()
      helper.write(dir .. "/-x.lua", "print('dash', ...)")
      check({ "--", "-x.lua", "-e" }, 0, "dash\t-e\n", nil, { prefix = "cd " .. dir .. ";" })
    end)

    it("without standard input, output or error", function()
      local closed = { "<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-" }
      local recipe = helper.recipe([[
        local nsbx = require "nsbx"
        local sb <close> = nsbx.create {}
        print("lost, or not")
        io.stderr:write("lost too, or not")
        local file <close> = assert(io.open(..., "w"))
        file:write(sb:exec("echo", { "ran" }).stdout, tostring(io.read("a")))
      ]])
      for _, redirections in ipairs(closed) do
        local result = helper.tmpdir() .. "/result"
        local line = "%s %s %s </dev/null >/dev/null 2>/dev/null %s"
        local _, how, code = os.execute(line:format(helper.quote(helper.program), recipe, result, redirections))
        assert.message(redirections).are.same({ "exit", 0 }, { how, code })
        assert.message(redirections).are.equal("ran\n", helper.read(result))
      end
    end)

    it("without a global of its own", function()
      check({ "-e", "require 'nsbx'; print(nsbx, package.loaded.nsbx ~= nil)" }, 0, "nil\ttrue\n")
    end)
  end)

  describe("says", function()
    it("where a recipe does not parse", function()
      local file = helper.recipe("local x = 1\nlocal = 2\n")
      check({ file }, 1, "", "nsbx-lua: " .. file .. ":2: ")
      local status, _, err = helper.run({ file })
      assert.are.equal(1, status)
      assert.is_falsy(err:find("stack traceback", 1, true))
    end)

    it("what went wrong, with a traceback", function()
      local file = helper.recipe("local function f()\n  error('boom')\nend\nf()\n")
      check({ file }, 1, "", "nsbx-lua: " .. file .. ":2: boom\nstack traceback:\n")
    end)

    it("an error object's own words, and that of nsbx with a traceback", function()
      check({ "-e", "error(setmetatable({}, {__tostring = function() return 'own words' end}))" }, 1, "",
        "nsbx-lua: own words\n")
      check({ "-e", "error({})" }, 1, "", "nsbx-lua: (error object is a table value)\nstack traceback:")
      check({ "-e", "require 'nsbx'.sleep(-1)" }, 1, "", "(command line):1: sleep: argument 1")
      check({ "-e", "require 'nsbx'.sleep(-1)" }, 1, "", "\nstack traceback:\n")
    end)

    it("that a file is not there", function()
      check({ "/no/such/file.lua" }, 1, "", "nsbx-lua: cannot open /no/such/file.lua")
    end)

    it("which option is wrong, and how it is used", function()
      check({ "--nonsense" }, 1, "", "nsbx-lua: unrecognized option '--nonsense'\nusage: nsbx-lua ")
      check({ "-e" }, 1, "", "nsbx-lua: '-e' needs argument\nusage: nsbx-lua ")
      check({ "-e", "-x" }, 1, "", "'-e' needs argument")
    end)

    it("what it is", function()
      local status, out = helper.run({ "--version" })
      assert.are.equal(0, status)
      assert.is_truthy(out:match("^nsbx%-lua %d+%.%d+%.%d+, Lua 5%.4%.%d+\n$"))
      assert.are.equal(out, select(2, helper.run({ "-v" })))
      status, out = helper.run({ "--help" })
      assert.are.equal(0, status)
      assert.is_truthy(out:find("usage: nsbx-lua", 1, true))
    end)
  end)

  describe("ends with", function()
    it("the status that os.exit was given", function()
      for call, status in pairs({ ["0"] = 0, ["7"] = 7, ["true"] = 0, ["false"] = 1, ["true, true"] = 0, [""] = 0 }) do
        check({ "-e", ("os.exit(%s) print 'went on'"):format(call) }, status, "")
        check({ "-e", ("require 'nsbx' pcall(os.exit%s) print 'went on'"):format(call == "" and "" or ", " .. call) },
          status, "")
      end
    end)

    it("1 when a task failed that nobody joined, which reports itself", function()
      check({ "-e", "local n = require 'nsbx' n.spawn(error, 'unseen') print 'main ended'" }, 1, "main ended\n",
        "nsbx: a task failed and nobody joined it: unseen\nstack traceback:")
      check({ "-e", "local n = require 'nsbx' local t = n.spawn(error, 'seen') print(pcall(t.join, t))" }, 0,
        "false\tseen\n")
    end)

    it("the tasks that are left, when the recipe ended well", function()
      check({ "-e", "local n = require 'nsbx' n.spawn(function() n.sleep(.05) print 'late' end) print 'main'" }, 0,
        "main\nlate\n")
    end)

    it("the tasks cancelled, when it failed", function()
      check({ "-e", [[
        local n = require "nsbx"
        n.spawn(function()
          local t <close> = setmetatable({}, {__close = function(_, e) n.sleep(.02) print("closed", e.code) end})
          n.sleep(100)
        end)
        n.sleep(.02)
        error("main")
      ]] }, 1, "closed\tcancelled\n", "main")
    end)
  end)

  -- A recipe with a closer in the main chunk and one in a task; `how` is what ends it.
  local function ending(how)
    return helper.run({ "-e", ([[
      local n = require "nsbx"
      local function closer(name)
        return setmetatable({}, {__close = function(_, e)
          n.sleep(.02) -- a close may wait
          print(name, e and e.code)
        end})
      end
      local main <close> = closer("main")
      local other = n.spawn(function() local t <close> = closer("other") n.sleep(100) end)
      n.sleep(.02)
      %s
    ]]):format(how) })
  end

  describe("runs <close>, which may wait,", function()
    it("on os.exit in the main chunk", function()
      local status, out = ending("os.exit(9)")
      assert.are.equal(9, status)
      assert.are.equal("other\tcancelled\nmain\tnil\n", out)
    end)

    it("on os.exit in a task, which no pcall stops", function()
      local status, out = ending([[
        n.spawn(function()
          local t <close> = closer("caller")
          pcall(os.exit, 9)
          print("went on")
        end)
        n.sleep(100)]])
      assert.are.equal(9, status)
      assert.are.equal("caller\tnil\nother\tcancelled\nmain\tnil\n", out)
    end)

    it("on os.exit in a coroutine of a task's own making, at the next wait at the latest", function()
      local status, out = ending([[
        n.spawn(function()
          local t <close> = closer("caller")
          pcall(coroutine.wrap(function() os.exit(9) end))
          pcall(n.sleep, 1)
          print("went on")
        end)
        n.sleep(100)]])
      assert.are.equal(9, status)
      assert.are.equal("caller\tnil\nother\tcancelled\nmain\tnil\n", out)
    end)

    it("on os.exit in a coroutine of the main chunk", function()
      local status, out = ending("coroutine.wrap(function() os.exit(9) end)()")
      assert.are.equal(9, status)
      assert.are.equal("other\tcancelled\nmain\tnil\n", out)
    end)

    it("on an error", function()
      local status, out = ending("error({code = 'mine'})")
      assert.are.equal(1, status)
      assert.are.equal("main\tmine\nother\tcancelled\n", out)
    end)
  end)
end)
