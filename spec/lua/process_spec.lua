-- sandbox:spawn and the process: its output, its input, its end. #agent
local helper = require("helper")
local nsbx = require("nsbx")

describe("a process #agent", function()
  local sb
  setup(function() sb = helper.sandbox() end)
  teardown(function() sb:close() end)

  local function sh(line, options) return sb:spawn("sh", { "-c", line }, options) end

  it("has a pid, runs, and ends", function()
    local process <close> = sb:spawn("sleep", { "0.05" })
    assert.is_truthy(math.type(process.pid) == "integer" and process.pid > 1)
    assert.is_nil(process.nothing)
    assert.are.equal("busy", sb.status)
    local result = process:wait()
    assert.are.equal(0, result.exit_code)
    assert.is_nil(result.stdout)
    assert.are.equal("ready", sb.status)
    assert.are.same(result, process:wait())
  end)

  it("that cannot start raises at once", function()
    local begin = nsbx.now()
    local ok, err = pcall(sb.spawn, sb, "/no/such/program")
    assert.is_false(ok)
    assert.are.equal("not_found", err.code)
    assert.are.equal("ENOENT", err.errno)
    assert.is_true(nsbx.now() - begin < 1)
  end)

  it("takes a shell's line", function()
    local process <close> = sb:spawn({ shell = "echo a | cat" })
    local out = {}
    for _, bytes in process:output() do
      out[#out + 1] = bytes
    end
    assert.are.equal("a\n", table.concat(out))
  end)

  describe("gives its output", function()
    it("as it comes", function()
      local process <close> = sh("echo 1; sleep .3; echo 2 >&2; sleep .3; printf 3")
      local seen, last = {}, nil
      for stream, bytes in process:output() do
        assert.is_true(not last or nsbx.now() - last > 0.1)
        last = nsbx.now()
        seen[#seen + 1] = stream .. ":" .. bytes
      end
      assert.are.same({ "stdout:1\n", "stderr:2\n", "stdout:3" }, seen)
      for _ in process:output() do
        error("there is more")
      end
    end)

    it("byte for byte", function()
      local process <close> = sh("head -c 3000000 /dev/urandom | tee random")
      local pieces = {}
      for _, bytes in process:output() do
        pieces[#pieces + 1] = bytes
      end
      assert.is_true(table.concat(pieces) == sb:read_file("random"))
    end)

    it("in lines, which are never cut and of which none is lost", function()
      local process <close> = sh([[printf 'one\n\ntw'; sleep .1; printf 'o\r\nthree'; printf 'err' >&2]])
      local lines = {}
      for stream, line in process:lines() do
        lines[#lines + 1] = stream .. ":" .. line
      end
      table.sort(lines)
      assert.are.same({ "stderr:err", "stdout:", "stdout:one", "stdout:three", "stdout:two\r" }, lines)
    end)

    it("in lines longer than any piece, of characters that no piece keeps whole", function()
      sb:write_file("long", ("a"):rep(4095) .. ("日本"):rep(50000) .. "\n" .. ("ü"):rep(100000))
      local process <close> = sb:spawn("cat", { "long" })
      local lines = {}
      for _, line in process:lines() do
        lines[#lines + 1] = line
      end
      assert.are.equal(2, #lines)
      assert.is_true(lines[1] == ("a"):rep(4095) .. ("日本"):rep(50000))
      assert.is_true(lines[2] == ("ü"):rep(100000))
    end)

    it("in many lines", function()
      local process <close> = sb:spawn("seq", { "200000" })
      local n = 0
      for _, line in process:lines() do
        n = n + 1
        if line ~= tostring(n) then
          error(("line %d is %q"):format(n, line))
        end
      end
      assert.are.equal(200000, n)
    end)

    it("on from where an iterator was left", function()
      local process <close> = sh("printf 'ready\\nrest of it'; read x; echo $x")
      for _, line in process:lines() do -- luacheck: ignore 512
        assert.are.equal("ready", line)
        break
      end
      assert.are.equal("busy", sb.status) -- a break ends the reading, not the process
      process:write("more\n")
      local rest = {}
      for _, bytes in process:output() do
        rest[#rest + 1] = bytes
      end
      assert.are.equal("rest of itmore\n", table.concat(rest))
    end)

    it("to one reader at a time", function()
      local process <close> = sb:spawn("sleep", { "100" })
      local reader = nsbx.spawn(function()
        for _ in process:output() do -- luacheck: ignore
        end
      end)
      nsbx.sleep(0.01)
      local ok, err = pcall(process.lines, process)
      assert.is_false(ok)
      assert.is_truthy(err.message:find("is being read already", 1, true))
      reader:close()
      process:lines() -- the reader is gone
      process:kill("KILL")
    end)
  end)

  describe("waited for", function()
    it("is not held up by output that nobody reads", function()
      local process <close> = sh("head -c 5000000 /dev/zero; exit 3")
      assert.are.equal(3, process:wait().exit_code)
      local ok, err = pcall(process.output, process)
      assert.is_false(ok)
      assert.is_truthy(err.message:find("was dropped", 1, true))
    end)

    it("leaves the output to a task that reads it", function()
      local process <close> = sh("head -c 5000000 /dev/zero")
      local got = 0
      local reader = nsbx.spawn(function()
        for _, bytes in process:output() do
          got = got + #bytes
        end
      end)
      assert.are.equal(0, process:wait().exit_code)
      reader:join()
      assert.are.equal(5000000, got)
    end)

    it("goes on when its reader breaks off", function()
      local process <close> = sh("head -c 5000000 /dev/zero")
      local reader = nsbx.spawn(function()
        for _ in process:output() do -- luacheck: ignore 512
          break
        end
      end)
      assert.are.equal(0, process:wait({ timeout = 20 }).exit_code)
      reader:join()
    end)

    it("within a time", function()
      local process <close> = sb:spawn("sleep", { "100" })
      local ok, err = pcall(process.wait, process, { timeout = 0.05 })
      assert.is_false(ok)
      assert.are.equal("timeout", err.code)
      process:kill("KILL")
      assert.are.equal("SIGKILL", process:wait({ timeout = 10 }).signal)
    end)

    it("tells of its own timeout as a result", function()
      local process <close> = sb:spawn("sleep", { "100" }, { timeout = 0.1 })
      assert.is_true(process:wait().timed_out)
    end)
  end)

  describe("takes input", function()
    it("until it is closed", function()
      local process <close> = sh("cat; sleep .1; echo done")
      process:write("one ")
      process:write("")
      process:write("two\0\255\n")
      process:close_stdin()
      local out = {}
      for _, bytes in process:output() do
        out[#out + 1] = bytes
      end
      assert.are.equal("one two\0\255\ndone\n", table.concat(out))
    end)

    it("of any size, while its output is read", function()
      local process <close> = sb:spawn("cat")
      local text = ("0123456789abcdef"):rep(256 * 1024) -- 4 MiB
      local writer = nsbx.spawn(function()
        process:write(text)
        process:close_stdin()
      end)
      local pieces = {}
      for _, bytes in process:output() do
        pieces[#pieces + 1] = bytes
      end
      writer:join()
      assert.is_true(table.concat(pieces) == text)
    end)

    it("as far as the command reads, and no further", function()
      local process <close> = sh("head -c 10 >/dev/null; exit 4")
      local wrote = 0
      local ok, err = pcall(function()
        for _ = 1, 1000 do
          process:write(("x"):rep(100000))
          wrote = wrote + 1
        end
      end)
      assert.is_false(ok)
      assert.is_truthy(err.code == "io" or err.code == "stream_lost", err)
      assert.is_true(wrote < 1000)
      assert.are.equal(4, process:wait().exit_code)
    end)

    it("until the command closes it, and says so", function()
      local process <close> = sh("exec <&-; echo closed; sleep 3; echo on; exit 6")
      local more, output = process:output()
      assert.are.equal("closed\n", select(2, more(output)))
      local ok, err
      for _ = 1, 200 do
        ok, err = pcall(process.write, process, ("x"):rep(1000))
        if not ok then break end
        nsbx.sleep(0.01) -- the word of it takes a moment
      end
      assert.are.same({ "stream_lost", "EPIPE", "stdin_closed" }, { err.code, err.errno, err.reason })
      process:close_stdin()
      assert.are.equal("on\n", select(2, more(output)))
      assert.are.equal(6, process:wait().exit_code)
    end)

    it("or a string from the start, and then no more", function()
      local process <close> = sb:spawn("cat", { stdin = "given" })
      for _, bytes in process:output() do
        assert.are.equal("given", bytes)
      end
      local ok, err = pcall(process.write, process, "more")
      assert.is_false(ok)
      assert.is_truthy(err.code)
    end)
  end)

  describe("is signalled", function()
    it("by name and number, in any of its forms", function()
      for _, how in ipairs({ "INT", "SIGINT", "int", 2, { signal = "INT" }, { signal = 2, tree = true } }) do
        local process <close> = sb:spawn("sleep", { "100" })
        assert.is_true(process:kill(how))
        assert.are.equal("SIGINT", process:wait({ timeout = 10 }).signal)
      end
    end)

    it("with TERM when nothing is said", function()
      local process <close> = sh("trap 'echo got it; exit 5' TERM; echo up; while :; do sleep .02; done")
      for _, line in process:lines() do -- luacheck: ignore 512
        assert.are.equal("up", line)
        break
      end
      process:kill()
      assert.are.equal(5, process:wait({ timeout = 10 }).exit_code)
    end)

    it("alone with its group, or with all of its tree", function()
      local mark = helper.mark()
      local process <close> = sh(("setsid sleep %s & sleep %s"):format(mark, mark))
      assert.is_true(helper.eventually(function() return helper.processes_with(mark) == 2 end))
      process:kill("KILL")
      process:wait({ timeout = 10 })
      assert.are.equal(1, helper.processes_with(mark))
      process:kill({ signal = "KILL", tree = true })
      helper.eventually(function() return helper.processes_with(mark) == 0 end, 2)
      sb:exec("pkill", { "-KILL", "-f", mark })
      process:close()
    end)

    it("when it has ended says that there was nothing to signal", function()
      local process <close> = sb:spawn("true")
      process:wait()
      assert.is_true(helper.eventually(function() return process:kill() == false end))
    end)

    it("while another task reads its output, at once", function()
      local process <close> = sb:spawn("sleep", { "100" })
      local reader = nsbx.spawn(function()
        for _ in process:output() do -- luacheck: ignore
        end
        return "ended"
      end)
      nsbx.sleep(0.05)
      local begin = nsbx.now()
      process:kill("KILL")
      assert.is_true(nsbx.now() - begin < 1)
      assert.are.equal("ended", reader:join({ timeout = 10 }))
    end)
  end)

  describe("closed", function()
    it("ends with all of its tree", function()
      local mark = helper.mark()
      local process = sh(("setsid sleep %s & sleep %s"):format(mark, mark))
      assert.is_true(helper.eventually(function() return helper.processes_with(mark) == 2 end))
      process:close()
      assert.are.equal(0, helper.processes_with(mark))
      process:close()
      local ok, err = pcall(process.wait, process)
      assert.is_false(ok)
      assert.are.same({ "destroyed", "the process is closed" }, { err.code, err.message })
    end)

    it("by leaving its block, on an error too", function()
      local mark = helper.mark()
      local ok, err = pcall(function()
        local process <close> = sb:spawn("sleep", { mark }) -- luacheck: ignore
        error("left", 0)
      end)
      assert.are.same({ false, "left" }, { ok, err })
      assert.are.equal(0, helper.processes_with(mark))
    end)

    it("by the collector, when nobody has it any more", function()
      local mark = helper.mark()
      sb:spawn("sleep", { mark })
      collectgarbage()
      collectgarbage()
      assert.is_true(helper.eventually(function() return helper.processes_with(mark) == 0 end, 10))
    end)

    it("while another task waits for it, ends that wait", function()
      local process = sb:spawn("sleep", { "100" })
      local waiter = nsbx.spawn(function() return process:wait() end)
      nsbx.sleep(0.02)
      process:close()
      local ok, result = pcall(waiter.join, waiter)
      assert.is_true(ok and result.signal ~= nil or nsbx.is(result, "destroyed"), result)
    end)
  end)
end)
