-- A guest that lies, dawdles and never stops: what waits for it ends in its time, with the truth, and nothing grows.
local helper = require("helper")
local nsbx = require("nsbx")

local function entries(n)
  local list = {}
  for i = 1, n do
    list[i] = ('["/w/%d",1,"file",420,0]'):format(i)
  end
  return ('{"type":"entries","entries":[%s]}'):format(table.concat(list, ","))
end

local done = '{"send":{"type":"done","visited":1}},{"end":true},{"fin":true}'

-- Calls f(sandbox) with a guest that answers `op` by these steps, in the main chunk and in a task.
local function against(op, steps, f)
  for _, in_task in ipairs({ false, true }) do
    local guest = helper.scripted_guest(('{"ops":{"%s":[[%s]]}}'):format(op, steps))
    do
      local sb <close> = nsbx.connect({ unix_path = guest.path })
      if in_task then
        nsbx.spawn(f, sb):join()
      else
        f(sb)
      end
    end
    helper.signal(guest, "KILL")
    helper.ended(guest)
  end
end

local function failure_within(seconds, f, ...)
  local begin = nsbx.now()
  local ok, err = pcall(f, ...)
  assert.is_false(ok)
  assert.is_true(nsbx.now() - begin < seconds, "it took too long")
  return err
end

describe("a hostile guest", function()
  it("that sends one entry at a time is listed and walked, however many there are", function()
    against("walk", ('{"blast":%s,"repeat":30},%s'):format(entries(1), done), function(sb)
      assert.are.equal(30000, #sb:list_files("/w"))
      local n = 0
      for _ in sb:walk_files("/w") do
        n = n + 1
      end
      assert.are.equal(30000, n)
    end)
  end)

  it("that sends one byte at a time is read by lines", function()
    against("execute", '{"blast":{"type":"stdout_delta","data":"eA=="},"repeat":20},' ..
      '{"send":{"type":"result","exitCode":0,"timedOut":false,"durationMs":1}},{"end":true},{"fin":true}', function(sb)
        local process <close> = sb:spawn("x")
        for _, line in process:lines() do
          assert.are.equal(("x"):rep(20000), line)
        end
        assert.are.equal(0, process:wait().exit_code)
      end)
  end)

  it("does not stretch the timeout of a list by sending on and on", function()
    against("walk", ('{"blast":%s,"repeat":100000}'):format(entries(1)), function(sb)
      assert.are.equal("timeout", failure_within(5, sb.list_files, sb, "/w", { timeout = 0.3 }).code)
    end)
    against("walk", ('{"trickle":[%s,30]}'):format(entries(1)), function(sb)
      assert.are.equal("timeout", failure_within(5, sb.list_files, sb, "/w", { timeout = 0.3 }).code)
    end)
  end)

  it("that sends messages without entries is waited for no longer than asked, and stops nothing", function()
    against("walk", '{"blast":{"type":"entries","entries":[]},"repeat":30},' .. done, function(sb)
      assert.are.same({}, sb:list_files("/w"))
    end)
    against("walk", '{"blast":{"type":"entries","entries":[]},"repeat":100000}', function(sb)
      local err = failure_within(5, function()
        for _ in sb:walk_files("/w", { timeout = 0.3 }) do end -- luacheck: ignore
      end)
      assert.are.equal("timeout", err.code)
    end)
  end)

  it("that confirms no end of its commands holds destroy up for its timeout, and it can be called again", function()
    local guest = helper.scripted_guest('{"ops":{"execute":[[{"send":{"type":"started","pid":5}},{"silence":true}]],' ..
      '"cancel-execution":[[{"sleep":0.8},{"builtin":true}]]}}')
    local sb = nsbx.connect({ unix_path = guest.path })
    local held = {}
    for i = 1, 5 do
      held[i] = sb:spawn("x")
    end
    local err = failure_within(0.7, sb.destroy, sb, { timeout = 0.2 })
    assert.are.equal("timeout", err.code)
    assert.are.equal("destroyed", sb.status)
    local begin = nsbx.now()
    pcall(sb.destroy, sb, { timeout = 10 })
    assert.is_true(nsbx.now() - begin < 2, "their ends were awaited one after another")
    assert.are.equal(5, #held)
    helper.signal(guest, "KILL")
    helper.ended(guest)
  end)
end)
