-- Memory runs out: each allocation of C in a scenario fails once, in turn. Each time the scenario succeeds or raises a
-- clear error, nothing stays open, and the next one works.
local helper = require("helper")
local nsbx = require("nsbx")

local agent_path

local function connected()
  return nsbx.connect({ unix_path = agent_path })
end

local scenarios = {
  ["connecting"] = function()
    local sb <close> = connected() -- luacheck: ignore
  end,
  ["exec"] = function()
    local sb <close> = connected()
    local result = sb:exec("sh", { "-c", "cat; echo x >&2" }, { stdin = "abc", env = { A = 1 }, timeout = 5 })
    assert(result.stdout == "abc" and result.stderr == "x\n")
  end,
  ["a process"] = function()
    local sb <close> = connected()
    local process <close> = sb:spawn("cat")
    process:write("a\nb")
    process:close_stdin()
    local lines = {}
    for _, line in process:lines() do
      lines[#lines + 1] = line
    end
    assert(table.concat(lines, "|") == "a|b")
    process:kill()
    assert(process:wait().exit_code == 0)
  end,
  ["files"] = function()
    local sb <close> = connected()
    sb:write_file("file", "text")
    assert(sb:read_file("file") == "text")
    local chunks = {}
    for chunk in sb:read_file_stream("file") do
      chunks[#chunks + 1] = chunk
    end
    assert(table.concat(chunks) == "text")
    assert(#sb:list_files(".") == 1)
    for entry in sb:walk_files(".") do
      assert(entry.size == 4)
    end
  end,
  ["tasks"] = function()
    local results = nsbx.all({
      function()
        nsbx.sleep(0.001)
        return 1
      end,
      function() return 2 end,
    })
    assert(results[1] == 1 and results[2] == 2)
    local task <close> = nsbx.spawn(pcall, nsbx.sleep, 10)
    nsbx.sleep(0)
    task:cancel()
  end,
  ["a sandbox's life"] = function()
    local sb <close> = nsbx.create()
    assert(sb:exec("true").exit_code == 0)
  end,
}

describe("without memory", function()
  for name, scenario in pairs(scenarios) do
    it(name .. " ends in a clear error, and leaves nothing", function()
      helper.agents_may_end_badly = true -- one whose host gave up before it answered is killed
      local agent = helper.agent()
      agent_path = agent.path
      helper.connect(agent):close() -- it listens
      scenario()
      local nth = 0
      repeat
        nth = nth + 1
        nsbx._debug.fail_alloc(nth)
        local ok, err = pcall(scenario)
        local count = nsbx._debug.fail_alloc(0)
        if not ok and not (nsbx.is(err, "limit") or nsbx.is(err, "unreachable")) then
          error(("with allocation %d failed: %s"):format(nth, err))
        end
        local left
        assert(helper.eventually(function()
          collectgarbage()
          collectgarbage()
          left = nsbx._debug.live()
          return #left == 0
        end), ("with allocation %d failed, left open: %s"):format(nth, table.concat(left, ", ")))
      until count < nth
      assert.is_true(nth > 3)
    end)
  end
end)
