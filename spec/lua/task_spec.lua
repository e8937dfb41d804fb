-- Tasks and waiting: what runs when, what a cancel does, and what happens in the places where Lua cannot yield.
local helper = require("helper") -- luacheck: ignore
local nsbx = require("nsbx")

-- Notes what happens, in order.
local function recorder()
  local notes = {}
  return notes, function(...)
    notes[#notes + 1] = table.concat({ ... }, " ")
  end
end

local function closer(note, name, wait)
  return setmetatable({}, {
    __close = function(_, err)
      note(name, "closing", err and (type(err) == "table" and err.code or "error") or "well")
      if wait then
        nsbx.sleep(wait)
        note(name, "closed")
      end
    end,
  })
end

describe("a task", function()
  it("gets its arguments and gives its results to join", function()
    local task = nsbx.spawn(function(...)
      nsbx.sleep(0.001)
      return select("#", ...), ...
    end, 1, nil, "x")
    assert.are.same({ 3, 1, nil, "x", n = 4 }, table.pack(task:join()))
    assert.are.same({ 3, 1, nil, "x", n = 4 }, table.pack(task:join()))
    assert.are.equal(0, select("#", nsbx.spawn(function() end):join()))
  end)

  it("runs while the others wait, and not before its maker waits", function()
    local notes, note = recorder()
    local a = nsbx.spawn(function()
      note("a1")
      nsbx.sleep(0.02)
      note("a2")
    end)
    local b = nsbx.spawn(function()
      note("b1")
      nsbx.sleep(0.01)
      note("b2")
    end)
    note("main")
    a:join()
    b:join()
    assert.are.same({ "main", "a1", "b1", "b2", "a2" }, notes)
  end)

  it("says what it does", function()
    local task = nsbx.spawn(nsbx.sleep, 0.02)
    assert.are.equal("ready", task:status())
    nsbx.sleep(0.001)
    assert.are.equal("waiting", task:status())
    task:join()
    assert.are.equal("done", task:status())
    assert.is_truthy(tostring(task):match("^nsbx%.task %(done, 0x%x+%)$"))
    assert.are.equal("task", nsbx.type(task))
    local self_status
    local own
    own = nsbx.spawn(function() self_status = own:status() end)
    own:join()
    assert.are.equal("running", self_status)
  end)

  it("raises its error in join, as it is, every time", function()
    local thing = setmetatable({}, {})
    local task = nsbx.spawn(error, thing)
    for _ = 1, 2 do
      local ok, err = pcall(task.join, task)
      assert.is_false(ok)
      assert.are.equal(thing, err)
    end
    assert.are.equal("failed", task:status())
  end)

  it("runs <close> after an error that nobody catches, and it may wait", function()
    local notes, note = recorder()
    local task = nsbx.spawn(function()
      local outer <close> = closer(note, "outer", 0.005) -- luacheck: ignore
      local inner <close> = closer(note, "inner", 0.005) -- luacheck: ignore
      error({ code = "mine" })
    end)
    assert.is_false(pcall(task.join, task))
    assert.are.same({ "inner closing mine", "inner closed", "outer closing mine", "outer closed" }, notes)
  end)

  it("can be waited for within a time", function()
    local task = nsbx.spawn(nsbx.sleep, 10)
    local ok, err = pcall(task.join, task, { timeout = 0.01 })
    assert.is_false(ok)
    assert.are.equal("timeout", err.code)
    assert.are.equal("waiting", task:status())
    task:close()
    assert.are.equal("cancelled", task:status())
  end)

  it("may be joined by several", function()
    local task = nsbx.spawn(function()
      nsbx.sleep(0.01)
      return "x"
    end)
    local joiners = {}
    for i = 1, 5 do
      joiners[i] = function() return task:join() end
    end
    assert.are.same({ "x", "x", "x", "x", "x" }, nsbx.all(joiners))
  end)

  it("waits for many at once", function()
    local list, expected = {}, {}
    for i = 1, 2000 do
      list[i] = function() return i end
      expected[i] = i
    end
    assert.are.same(expected, nsbx.all(list))
  end)

  it("is closed by leaving its block: cancelled, and waited for", function()
    local notes, note = recorder()
    do
      local task <close> = nsbx.spawn(function() -- luacheck: ignore
        local c <close> = closer(note, "task", 0.005) -- luacheck: ignore
        nsbx.sleep(10)
      end)
      nsbx.sleep(0.001)
    end
    assert.are.same({ "task closing cancelled", "task closed" }, notes)
  end)

  it("cannot join itself", function()
    local own
    own = nsbx.spawn(function() return own:join() end)
    local ok, err = pcall(own.join, own)
    assert.is_false(ok)
    assert.are.equal("invalid", err.code)
    assert.is_truthy(err.message:find("cannot join itself", 1, true))
  end)

  it("that yields outside of a coroutine gets lua's own error", function()
    local task = nsbx.spawn(function()
      return pcall(function()
        coroutine.yield(1)
      end)
    end)
    assert.are.same({ false, "attempt to yield from outside a coroutine" }, { task:join() })
  end)
end)

describe("a cancelled task", function()
  it("gets the error at its wait, once, and may clean up", function()
    local notes, note = recorder()
    local task = nsbx.spawn(function()
      local c <close> = closer(note, "task", 0.005) -- luacheck: ignore
      local ok, err = pcall(nsbx.sleep, 10)
      note(tostring(ok), err.code, err.reason)
      nsbx.sleep(0.005)
      note("went on")
      return "result"
    end)
    nsbx.sleep(0.001)
    task:cancel()
    task:cancel()
    assert.are.equal("result", task:join())
    assert.are.same({ "false cancelled cancel", "went on", "task closing well", "task closed" }, notes)
    assert.are.equal("done", task:status())
  end)

  it("that has not begun never begins", function()
    local began = false
    local task = nsbx.spawn(function() began = true end)
    task:cancel()
    local ok, err = pcall(task.join, task)
    assert.is_false(ok)
    assert.are.equal("cancelled", err.code)
    assert.is_false(began)
    assert.are.equal("cancelled", task:status())
  end)

  it("that computes gets it at its next wait", function()
    local task
    task = nsbx.spawn(function()
      task:cancel()
      local before = "computed"
      local ok, err = pcall(nsbx.sleep, 0)
      return before, ok, err.code
    end)
    assert.are.same({ "computed", false, "cancelled" }, { task:join() })
  end)

  it("that has ended is left alone", function()
    local task = nsbx.spawn(function() return 1 end)
    task:join()
    task:cancel()
    assert.are.equal(1, task:join())
    assert.are.equal("done", task:status())
  end)

  it("that waits for another one stops waiting, and the other goes on", function()
    local other = nsbx.spawn(function()
      nsbx.sleep(0.02)
      return "other"
    end)
    local task = nsbx.spawn(function() return other:join() end)
    nsbx.sleep(0.001)
    task:cancel()
    local _, err = pcall(task.join, task)
    assert.are.equal("cancelled", err.code)
    assert.are.equal("other", other:join())
  end)

  it("that goes on after its grace is ended at a wait, where no pcall stops it", function()
    local notes, note = recorder()
    local rounds = 0
    local task = nsbx.spawn(function()
      local c <close> = closer(note, "task", 0.005) -- luacheck: ignore
      while true do
        pcall(nsbx.sleep, 10)
        rounds = rounds + 1
      end
    end)
    nsbx.sleep(0.001)
    task:cancel()
    local begin = nsbx.now()
    local ok, err = pcall(task.join, task)
    assert.is_false(ok)
    assert.are.equal("cancelled", err.code)
    assert.is_true(nsbx.now() - begin > 4 and nsbx.now() - begin < 8)
    assert.is_true(rounds < 10)
    assert.are.same({ "task closing well", "task closed" }, notes)
  end)
end)

describe("a wait", function()
  local function ticking()
    local count = 0
    local task = nsbx.spawn(function()
      while true do
        nsbx.sleep(0.001)
        count = count + 1
      end
    end)
    return task, function() return count end
  end

  it("of the main chunk lets tasks go on, wherever in it it is", function()
    local task <close>, count = ticking()
    local function went_on()
      local before, deadline = count(), nsbx.now() + 5
      repeat
        nsbx.sleep(0.002)
      until count() > before or nsbx.now() > deadline
      return count() > before
    end
    assert.is_true(went_on())
    assert.is_true(coroutine.wrap(went_on)())
    assert.is_true(select(2, pcall(went_on)))
    local in_sort
    table.sort({ 2, 1 }, function(a, b)
      in_sort = went_on()
      return a < b
    end)
    assert.is_true(in_sort)
    local in_gsub
    string.gsub("x", "x", function() in_gsub = went_on() end)
    assert.is_true(in_gsub)
    local in_index = setmetatable({}, { __index = went_on }).key
    assert.is_true(in_index)
    local in_close
    do
      local c <close> = setmetatable({}, { __close = function() in_close = went_on() end }) -- luacheck: ignore
    end
    assert.is_true(in_close)
    for value in coroutine.wrap(function()
      coroutine.yield(went_on())
      coroutine.yield(went_on())
    end) do
      assert.is_true(value)
    end
    local _ = task
  end)

  it("of a task, in a generator inside pcall inside for, comes out right", function()
    local task = nsbx.spawn(function()
      local got = {}
      local function numbers()
        return coroutine.wrap(function()
          for i = 1, 3 do
            nsbx.sleep(0.001)
            coroutine.yield(i)
          end
        end)
      end
      for i in numbers() do
        local ok, value = pcall(function()
          nsbx.sleep(0.001)
          return i * 2
        end)
        got[#got + 1] = ok and value
      end
      return table.concat(got, " ")
    end)
    assert.are.equal("2 4 6", task:join())
  end)

  it("of a task where it cannot yield stands still with all others", function()
    local ticker <close>, count = ticking()
    local task = nsbx.spawn(function()
      local results = {}
      local function stands_still()
        local before = count()
        nsbx.sleep(0.01)
        results[#results + 1] = count() == before
      end
      coroutine.wrap(stands_still)()
      table.sort({ 2, 1 }, function(a, b)
        stands_still()
        return a < b
      end)
      string.gsub("x", "x", stands_still)
      package.preload["spec.waits_at_top"] = stands_still
      require("spec.waits_at_top")
      package.loaded["spec.waits_at_top"] = nil
      return results
    end)
    for _, stood in ipairs(task:join()) do
      assert.is_true(stood)
    end
    local _ = ticker
  end)

  it("of a finalizer ends, and no task runs inside it", function()
    local ticker <close>, count = ticking()
    local stood
    setmetatable({}, {
      __gc = function()
        local before = count()
        nsbx.sleep(0.01)
        stood = count() == before
      end,
    })
    collectgarbage()
    assert.is_true(stood)
    local _ = ticker
  end)

  it("of a finalizer in the middle of another wait leaves that one as it was", function()
    local ran
    local begin = nsbx.now()
    local failing = nsbx.spawn(function() -- a failure has the collector run while the main chunk waits
      setmetatable({}, {
        __gc = function()
          nsbx.sleep(0.01)
          ran = true
        end,
      })
      error("seen below")
    end)
    nsbx.sleep(0.2)
    assert.is_true(ran)
    assert.is_true(nsbx.now() - begin < 5)
    assert.is_false(pcall(failing.join, failing))
  end)

  it("for a task, where no task goes on, is refused by name", function()
    local other = nsbx.spawn(nsbx.sleep, 0.02)
    local task = nsbx.spawn(function()
      return coroutine.wrap(function() return pcall(other.join, other) end)()
    end)
    local ok, err = task:join()
    assert.is_false(ok)
    assert.are.equal("invalid", err.code)
    assert.is_truthy(err.message:find("a task cannot be waited for here", 1, true))
    other:join()
  end)

  it("that nothing can end is given up", function()
    local a, b
    a = nsbx.spawn(function() return b:join() end)
    b = nsbx.spawn(function() return a:join() end)
    local ok, err = pcall(a.join, a)
    assert.is_false(ok)
    assert.is_truthy(err.message:find("nothing is left that could end this wait", 1, true))
    a:cancel()
    assert.is_false(pcall(a.join, a))
    assert.is_false(pcall(b.join, b))
  end)

  it("is no wait for nothing: the loop does not spin", function()
    local clock = os.clock()
    nsbx.sleep(0.3)
    assert.is_true(os.clock() - clock < 0.15)
  end)
end)

describe("nsbx.sleep", function()
  it("sleeps at least so long", function()
    for _, s in ipairs({ 0, 0.001, 0.0105, 0.02 }) do
      local begin = nsbx.now()
      nsbx.sleep(s)
      assert.is_true(nsbx.now() - begin >= s)
    end
  end)

  it("with 0 lets the others have their turn", function()
    local notes, note = recorder()
    local task = nsbx.spawn(note, "task")
    nsbx.sleep(0)
    note("main")
    task:join()
    assert.are.same({ "task", "main" }, notes)
  end)
end)

describe("nsbx.all", function()
  it("gives the first result of each, in order", function()
    local given = nsbx.spawn(function() return "c", "d" end)
    assert.are.same({ "a", "b", "c" }, nsbx.all({
      function()
        nsbx.sleep(0.01)
        return "a"
      end,
      function() return "b" end,
      given,
    }))
    assert.are.same({}, nsbx.all({}))
  end)

  it("raises the first failure at once, after the others are cancelled and closed", function()
    local notes, note = recorder()
    local begin = nsbx.now()
    local ok, err = pcall(nsbx.all, {
      function()
        local c <close> = closer(note, "slow", 0.005) -- luacheck: ignore
        nsbx.sleep(10)
      end,
      function()
        nsbx.sleep(0.005)
        error("the reason", 0)
      end,
    })
    assert.are.same({ false, "the reason" }, { ok, err })
    assert.are.same({ "slow closing cancelled", "slow closed" }, notes)
    assert.is_true(nsbx.now() - begin < 5)
  end)

  it("cancelled cancels them", function()
    local notes, note = recorder()
    local task = nsbx.spawn(nsbx.all, {
      function()
        local c <close> = closer(note, "inner") -- luacheck: ignore
        nsbx.sleep(10)
      end,
    })
    nsbx.sleep(0.005)
    task:cancel()
    assert.is_false(pcall(task.join, task))
    assert.are.same({ "inner closing cancelled" }, notes)
  end)

  it("refuses what is no list of tasks", function()
    for _, wrong in ipairs({ 1, "x", { 1 }, { function() end, {} } }) do
      local ok, err = pcall(nsbx.all, wrong)
      assert.is_false(ok)
      assert.are.equal("invalid", err.code)
    end
  end)
end)

describe("many tasks", function()
  it("come and go", function()
    local done = 0
    local tasks = {}
    for i = 1, 2000 do
      tasks[i] = nsbx.spawn(function()
        nsbx.sleep(0.001 * (i % 7))
        done = done + 1
      end)
    end
    for _, task in ipairs(tasks) do
      task:join()
    end
    assert.are.equal(2000, done)
  end)
end)
