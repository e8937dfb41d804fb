-- The examples run, and say what they promise. #agent #user
local helper = require("helper")

describe("examples/quickstart.lua #agent #user", function()
  it("shows each step, and leaves nothing", function()
    local status, out, err = helper.run({ "examples/quickstart.lua" })
    assert.message(err).are.equal(0, status)
    assert.are.equal("", err)
    for _, line in ipairs({
      "  its workspace, from inside         /workspace",
      "  uid inside                         1000",
      "  capabilities, CapBnd               0000000000000000",
      "  no_new_privs                       1",
      "  bytes in notes/words.txt           14",
      "  it exited with                     0",
      "  loud.txt                           one two three ",
      "  /workspace/tree/1                  0 bytes",
      "  /workspace/tree/a/2                0 bytes",
      "  running: it and its setsid child   2",
      "  left of it and its child           0",
      "  processes before                   1",
      "  processes after                    0",
      "  its status                         destroyed",
    }) do
      assert.is_truthy(out:find("\n" .. line .. "\n", 1, true), line .. "\nis not in\n" .. out)
    end
    assert.is_nil(out:find("tree/a/3", 1, true)) -- the break came before
    local times = {}
    for time, word in out:gmatch("stdout after (%d%.%d) s%s+(%l+)\n") do
      local tenths = tonumber(time) * 10 + 0.5
      times[#times + 1] = word .. (tenths >= 2 * (#times + 1) and "" or " too early")
    end
    assert.are.same({ "one", "two", "three" }, times)
  end)
end)
