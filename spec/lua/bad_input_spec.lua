-- What a sandbox is given that nobody would want to give it. Each gets a right answer or a clear error, soon, and the
-- sandbox can be used afterwards. (A recipe that does not parse: host_spec. An unknown option: argument_spec.) #agent
local helper = require("helper")
local nsbx = require("nsbx")

describe("a sandbox #agent", function()
  local sb
  setup(function() sb = helper.sandbox() end)
  teardown(function() sb:close() end)
  after_each(function()
    assert.are.equal("usable\n", sb:exec("echo", { "usable" }).stdout)
    assert.are.equal("ready", sb.status)
  end)

  local function fails(code, f, ...)
    local begin = nsbx.now()
    local ok, err = pcall(f, ...)
    assert.is_false(ok)
    assert.message(tostring(err)).are.equal(code, err.code)
    assert.is_true(nsbx.now() - begin < 5)
    return err
  end

  local function not_regular(what, reason, f, ...)
    local err = fails("invalid", f, ...)
    assert.are.equal(what .. ": it is not a regular file but a directory, a FIFO, a socket or a device", err.message)
    assert.are.equal(reason, err.reason)
  end

  it("with a command that does not exist", function()
    local begin = nsbx.now()
    local err = fails("not_found", sb.exec, sb, "no-such-command")
    assert.is_true(nsbx.now() - begin < 1)
    assert.is_truthy(err.message:find("no-such-command", 1, true))
    assert.are.equal("ENOENT", err.errno)
    fails("not_found", sb.exec, sb, "/no/such/command")
    fails("forbidden", sb.exec, sb, "/etc/passwd")
    fails("forbidden", sb.exec, sb, "/usr")
    assert.are.equal(127, sb:exec({ shell = "no-such-command" }).exit_code)
  end)

  it("with 64 KiB of random bytes on stdout", function()
    local result = sb:exec({ shell = "head -c 65536 /dev/urandom | tee random" })
    assert.are.equal(65536, #result.stdout)
    assert.is_true(result.stdout == sb:read_file("random"))
    assert.is_false(result.maybe_lossy)
  end)

  it("with 200 MiB on stdout and a slow reader", function()
    local total = 200 << 20
    local process <close> = sb:spawn("head", { "-c", tostring(total), "/dev/zero" })
    local got, slow = 0, 0
    for _, bytes in process:output() do
      got = got + #bytes
      if got >> 23 > slow then -- a pause every 8 MiB, so that everything in between fills up
        slow = got >> 23
        nsbx.sleep(0.02)
        collectgarbage()
      end
    end
    assert.are.equal(total, got)
    assert.are.equal(0, process:wait().exit_code)
    local status = helper.read("/proc/self/status")
    assert.is_true(tonumber(status:match("VmRSS:%s*(%d+)")) < 600 * 1024) -- with the sanitizer's own share
  end)

  it("with 200 MiB on stdout that exec collects: cut, and said so", function()
    local result = sb:exec("head", { "-c", tostring(200 << 20), "/dev/zero" }, { max_output = 1 << 20 })
    assert.are.same({ 1 << 20, true, 0 }, { #result.stdout, result.stdout_truncated, result.exit_code })
  end)

  it("with a child that keeps the pipe open after its parent ended", function()
    local mark = helper.mark()
    local begin = nsbx.now()
    local result = sb:exec({ shell = "(sleep " .. mark .. ") & echo parent" })
    assert.are.same({ "parent\n", true, 0 }, { result.stdout, result.pipes_open, result.exit_code })
    assert.is_true(nsbx.now() - begin < 2)
    local process <close> = sb:spawn("sh", { "-c", "(sleep " .. mark .. ") & echo parent" })
    local lines = {}
    for _, line in process:lines() do
      lines[#lines + 1] = line
    end
    assert.are.same({ "parent" }, lines)
    assert.is_true(process:wait().pipes_open)
    sb:exec("pkill", { "-KILL", "-f", mark })
  end)

  it("with output without a final newline", function()
    assert.are.equal("no newline", sb:exec("printf", { "no newline" }).stdout)
    local process <close> = sb:spawn("printf", { "one\ntwo" })
    local lines = {}
    for _, line in process:lines() do
      lines[#lines + 1] = line
    end
    assert.are.same({ "one", "two" }, lines)
  end)

  it("with a path outside the workspace", function()
    for _, path in ipairs({ "/etc/passwd", "../etc/passwd", "/workspace/../etc/passwd", "/", "a/../../b" }) do
      fails("forbidden", sb.read_file, sb, path)
      fails("forbidden", sb.write_file, sb, path, "x")
      fails("forbidden", sb.list_files, sb, path)
      fails("forbidden", function()
        for _ in sb:walk_files(path) do -- luacheck: ignore
        end
      end)
      fails("forbidden", function()
        for _ in sb:read_file_stream(path) do -- luacheck: ignore
        end
      end)
    end
    assert.is_truthy(fails("forbidden", sb.exec, sb, "pwd", { cwd = "/etc" }).message)
  end)

  it("with a link that leaves the workspace", function()
    sb:exec({ shell = "ln -s /etc/passwd out; ln -s /etc outdir; ln -s missing dangling" })
    sb:exec({ shell = "ln -s in2 in1; ln -s in1 in2" })
    for _, path in ipairs({ "out", "outdir/passwd" }) do
      fails("forbidden", sb.read_file, sb, path)
    end
    fails("forbidden", sb.write_file, sb, "out", "x")
    fails("forbidden", sb.write_file, sb, "outdir/x", "x")
    fails("forbidden", sb.list_files, sb, "outdir")
    fails("not_found", sb.read_file, sb, "dangling")
    assert.is_truthy(pcall(sb.read_file, sb, "in1") == false)
    sb:exec({ shell = "rm -f out outdir dangling in1 in2; echo inside > target; ln -s /workspace/target link" })
    assert.are.equal("inside\n", sb:read_file("link"))
  end)

  it("with a FIFO, a directory, a device, a missing file", function()
    sb:exec({ shell = "mkfifo fifo; mkdir -p dir" })
    for _, path in ipairs({ "fifo", "dir", "." }) do
      not_regular("cannot read '" .. path .. "'", "read_file_stream_not_a_regular_file", sb.read_file, sb, path)
      not_regular("cannot read '" .. path .. "'", "read_file_stream_not_a_regular_file", function()
        for _ in sb:read_file_stream(path) do -- luacheck: ignore
        end
      end)
    end
    not_regular("cannot write 'fifo'", "write_file_not_a_regular_file", sb.write_file, sb, "fifo", "x")
    local err = fails("invalid", sb.write_file, sb, "dir", "x")
    assert.are.equal("EISDIR", err.errno)
    assert.is_truthy(err.message:find("cannot write 'dir': .*directory"))
    fails("not_found", sb.read_file, sb, "missing")
    fails("not_found", sb.read_file, sb, "missing/file")
    fails("not_found", sb.list_files, sb, "missing")
    assert.are.equal("ENOTDIR", fails("not_found", sb.list_files, sb, "fifo").errno)
    fails("not_found", function()
      for _ in sb:read_file_stream("missing") do -- luacheck: ignore
      end
    end)
  end)

  it("with a device in the workspace", function()
    local own <close> = helper.sandbox({ read_write = { ["/workspace/dev"] = "/dev/null" } })
    -- What is mounted from the host has no devices: not even opening it is allowed.
    local err = fails("forbidden", own.read_file, own, "dev")
    assert.are.equal("EACCES", err.errno)
    assert.is_truthy(err.message:find("cannot read 'dev': .*permission denied"))
    not_regular("cannot write 'dev'", "write_file_not_a_regular_file", own.write_file, own, "dev", "x")
    assert.are.equal("usable\n", own:exec("echo", { "usable" }).stdout)
  end)

  it("with names of every byte", function()
    for _, name in ipairs({ "-n", "--help", "a b", "new\nline", "tab\t", "\255\254", "é日本", "'\"\\$(x)`x`*", "…" }) do
      sb:write_file("names/" .. name, name)
      assert.are.equal(name, sb:read_file("names/" .. name))
      local result = sb:exec("cat", { "--", "names/" .. name })
      assert.message(result.stderr).are.equal(name, result.stdout)
      local found = false
      for entry in sb:walk_files("names") do
        found = found or entry.path == "/workspace/names/" .. name
      end
      assert.message(name).is_true(found)
    end
    assert.are.equal("\255\0", sb:exec("printf", { "\\377\\000" }).stdout)
    assert.are.equal("\255x", sb:exec("sh", { "-c", "printf %s \"$A\"" }, { env = { A = "\255x" } }).stdout)
  end)

  it("with long things", function()
    local long = ("x"):rep(100000)
    assert.are.equal(100001, #sb:exec("echo", { long }).stdout)
    local _, err = pcall(sb.exec, sb, "echo", { ("x"):rep(200000) }) -- longer than the kernel takes
    assert.are.equal("E2BIG", err.errno)
    assert.is_false(pcall(sb.read_file, sb, ("d/"):rep(3000) .. "x"))
    assert.is_false(pcall(sb.write_file, sb, ("n"):rep(300), "x"))
    local many = {}
    for i = 1, 5000 do
      many[i] = i
    end
    assert.are.equal("5000\n", sb:exec("sh", { "-c", "echo $#", "sh", table.unpack(many) }).stdout)
  end)

  it("with a command that eats its memory, its processes or its descriptors", function()
    local own <close> = helper.sandbox({ limits = { processes = 30, memory_per_process = 1 << 28, open_files = 32 } })
    local result = own:exec({ shell = "for i in $(seq 200); do sleep 20 & done; wait", timeout = 3 })
    assert.is_truthy(result.exit_code ~= 0)
    assert.are.equal("usable\n", own:exec("echo", { "usable" }).stdout)
  end)
end)

describe("an agent on a full disk #agent", function()
  it("says so, keeps what was there, and goes on", function()
    local agent = helper.agent("unshare -Urm sh -c 'mount -t tmpfs -o size=1m none WORKSPACE && exec \"$@\"' sh")
    local sb <close> = helper.connect(agent)
    sb:write_file("small", "before")
    for _ = 1, 3 do
      local ok, err = pcall(sb.write_file, sb, "small", ("x"):rep(4 << 20))
      assert.is_false(ok)
      assert.message(tostring(err)).are.same({ "limit", "ENOSPC" }, { err.code, err.errno })
    end
    assert.are.equal("before", sb:read_file("small"))
    assert.are.equal("small\n", sb:exec("ls", { "-A" }).stdout)
    local result = sb:exec({ shell = "head -c 4M /dev/zero > big" })
    assert.are_not.equal(0, result.exit_code)
    assert.is_truthy(result.stderr:find("No space left", 1, true))
    sb:exec("rm", { "big" })
    sb:write_file("small", "after")
    assert.are.equal("after", sb:read_file("small"))
  end)
end)
