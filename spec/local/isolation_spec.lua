-- What a local sandbox cannot see, touch or outlive. Everything here runs as root and as a plain user (#user).
local helper = require "helper"
local nsbx = require "nsbx"

local function with_sandbox(options, f)
  local backend <close> = nsbx.local_backend(options)
  local sb <close> = backend:create{}
  return f(sb, backend)
end

-- Runs a shell text and returns its trimmed stdout; what it wrote to stderr shows when `expected_code` differs.
local function sh(sb, text, expected_code)
  local r = sb:exec("/bin/sh", {"-c", text}, {timeout = 20})
  assert.message(text .. "\n" .. r.stdout .. r.stderr).are.equal(expected_code or 0, r.exit_code)
  return (r.stdout:gsub("%s+$", ""))
end

local function host(command)
  local pipe <close> = assert(io.popen(command .. " 2>/dev/null"))
  return (pipe:read("a"):gsub("%s+$", ""))
end

local am_root = host("id -u") == "0"

describe("a local sandbox #user", function()
  describe("by default", function()
    local backend, sb
    setup(function()
      backend = nsbx.local_backend{}
      sb = backend:create{}
    end)
    teardown(function()
      sb:close()
      backend:close()
    end)

    it("has no capability in any mask and no_new_privs", function()
      local status = sb:exec("/bin/cat", {"/proc/self/status"}).stdout
      for _, mask in ipairs{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} do
        assert.are.equal("0000000000000000", status:match(mask .. ":%s*(%x+)"))
      end
      assert.are.equal("1", status:match("NoNewPrivs:%s*(%d)"))
    end)

    it("runs under uid 1000 inside and never under the host's root", function()
      assert.are.equal("uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)", sh(sb, "id"))
      local mark = helper.mark()
      local process <close> = sb:spawn("sleep", {mark})
      local deadline, uid = nsbx.now() + 5, ""
      while uid == "" and nsbx.now() < deadline do
        uid = host("ps -eo uid=,args= | grep '[s]leep " .. mark .. "' | awk '{print $1}' | head -1")
      end
      assert.are.equal(am_root and "65534" or host("id -u"), uid)
      process:kill{signal = "KILL", tree = true}
      process:wait{timeout = 5}
    end)

    it("cannot write the kernel's switches", function()
      for _, path in ipairs{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname"} do
        local r = sb:exec("/bin/sh", {"-c", "echo x > " .. path})
        assert.message(path).are_not.equal(0, r.exit_code)
      end
    end)

    it("does not have the host's secrets", function()
      local secrets = {"/etc/shadow", "/root", "/home", "/var", "/boot", "/sys", "/etc/ssl/private", "/etc/hostname"}
      for _, path in ipairs(secrets) do
        assert.message(path).are_not.equal(0, sb:exec("/bin/ls", {path}).exit_code)
      end
      local etc = {"alternatives", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "passwd"}
      if host("ls -d /etc/ssl/certs") ~= "" then -- a host without ca-certificates has none to show
        etc[#etc + 1] = "ssl"
        assert.are.equal("/etc/ssl/certs", sh(sb, "ls -d /etc/ssl/*"))
      end
      assert.are.equal(table.concat(etc, "\n"), sh(sb, "ls /etc"))
    end)

    it("has nothing of the host's environment", function()
      local names = {}
      for name in sb:exec("/usr/bin/env").stdout:gmatch("([^\n=]+)=[^\n]*") do
        names[#names + 1] = name
      end
      table.sort(names)
      assert.are.same({"HOME", "LANG", "PATH", "PWD", "TERM"}, names)
      assert.are.equal("/workspace C.UTF-8", sh(sb, "echo $HOME $LANG"))
    end)

    it("has a read-only root and writable places that are bounded", function()
      for _, path in ipairs{"/x", "/etc/x", "/usr/x", "/dev/x", "/run/x"} do
        assert.message(path).are_not.equal(0, sb:exec("/bin/sh", {"-c", "echo > " .. path}).exit_code)
      end
      for _, path in ipairs{"/workspace/x", "/tmp/x", "/dev/shm/x"} do
        sh(sb, "echo > " .. path .. " && rm " .. path)
      end
      local r = sb:exec{shell = "head -c 300M /dev/zero > /tmp/big; e=$?; rm -f /tmp/big; exit $e", timeout = 60}
      assert.are_not.equal(0, r.exit_code)
      assert.truthy(r.stderr:find("No space left", 1, true))
    end)

    it("has no network but its own loopback", function()
      assert.are.equal("lo", sh(sb, "ls /proc/sys/net/ipv4/conf | grep -v -e all -e default"))
      assert.are_not.equal(0, sb:exec("/bin/ls", {"/etc/resolv.conf"}).exit_code)
    end)

    it("cannot make further user namespaces", function()
      assert.are_not.equal(0, sb:exec("/usr/bin/unshare", {"-U", "true"}).exit_code)
    end)

    it("cannot reach into its PID 1", function()
      assert.are.equal("nsbx-agent", sh(sb, "cat /proc/1/comm"))
      for _, signal in ipairs{"KILL", "TERM", "STOP", "INT", "HUP", "USR1", "CHLD"} do
        sb:exec("/bin/sh", {"-c", "kill -" .. signal .. " 1"})
        assert.message(signal).are.equal("alive", sh(sb, "echo alive"))
      end
      for _, file in ipairs{"environ", "mem", "maps", "auxv", "syscall"} do
        assert.message(file).are_not.equal(0, sb:exec("/bin/cat", {"/proc/1/" .. file}).exit_code)
      end
      assert.are_not.equal(0, sb:exec("/bin/ls", {"/proc/1/fd"}).exit_code)
      assert.are_not.equal(0, sb:exec("/bin/ls", {"/proc/1/root/"}).exit_code)
      assert.are.equal("alive", sh(sb, "echo alive"))
    end)

    it("cannot trace its PID 1", function()
      -- PTRACE_ATTACH is request 16; perl needs no compiler in the sandbox.
      local r = sb:exec("/usr/bin/perl", {"-e", "my $r = syscall(101, 16, 1, 0, 0); print $r, ' ', 0 + $!"})
      assert.are.equal("-1 1", r.stdout) -- EPERM
      assert.are.equal("alive", sh(sb, "echo alive"))
    end)

    it("shows no socket of the agent", function()
      assert.are.equal("", sh(sb, "find / -xdev -type s 2>/dev/null; find /tmp /workspace /run /dev -type s"))
      local unix = sb:exec("/bin/cat", {"/proc/net/unix"}).stdout
      for line in unix:gmatch("[^\n]+") do
        local name = line:match("^%x+: %x+ %x+ %x+ %x+ %x+ +%d+ (.+)$")
        local reachable = name and name:match("^[@/]") and sb:exec("/bin/ls", {name}).exit_code == 0
        assert.message(line).is_falsy(reachable)
      end
    end)

    it("gives commands no descriptor but the three", function()
      assert.are.equal("0 1 2", sh(sb, "cd /proc/self/fd && echo [0-2] && ls | tail -n +5").. "")
    end)
  end)

  it("ends with everything in it", function()
    local mark = helper.mark()
    with_sandbox({}, function(sb)
      sb:exec("/bin/sh", {"-c", "setsid sleep " .. mark .. " & (setsid sleep " .. mark .. " &)"})
      assert.are.equal("2", host("ps -eo args= | grep -c '^sleep " .. mark .. "'"))
    end)
    assert.are.equal("0", host("ps -eo args= | grep -c '^sleep " .. mark .. "'"))
  end)

  it("holds its limits", function()
    local mib = 1024 * 1024
    local limits = {processes = 20, memory_per_process = 512 * mib, file_size = mib, open_files = 64, cpu_seconds = 1}
    with_sandbox({limits = limits},
      function(sb)
        assert.are.equal("524288", sh(sb, "ulimit -v"))
        assert.are.equal("64", sh(sb, "ulimit -n"))
        local r = sb:exec("/bin/sh", {"-c", "head -c 2M /dev/zero > f"})
        assert.are_not.equal(0, r.exit_code)
        assert.are.equal("1048576", sh(sb, "stat -c %s f"))
        r = sb:exec("/bin/sh", {"-c", "while :; do :; done"}, {timeout = 20})
        assert.is_false(r.timed_out)
        assert.is_truthy(r.signal)
        r = sb:exec("/usr/bin/perl", {"-e", "my $x = 'x' x (1 << 30)"})
        assert.are_not.equal(0, r.exit_code)
        -- Last, since what it started lives on.
        r = sb:exec("/bin/sh", {"-c", "for i in $(seq 60); do sleep 60 & done; wait"}, {timeout = 10})
        assert.is_false(r.timed_out)
        assert.truthy(r.stderr:lower():find("fork"))
      end)
  end)

  it("refuses a limit that the host's own is below, by name, and takes the host's own", function()
    for limit, letter in pairs{open_files = "n", cpu_seconds = "t"} do
      local command = {"-e", ([[
        local nsbx = require "nsbx"
        local function with(n)
          local sb, err = nsbx.try(function() return nsbx.local_backend{limits = {%s = n}}:create{} end)
          print(sb and sb:exec{shell = "ulimit -%s"}.stdout or err.code .. ": " .. err.message)
          if sb then sb:destroy() end
        end
        with(400) with(401)
      ]]):format(limit, letter)}
      local _, out, err = helper.run(command, {prefix = ("ulimit -%s 400 &&"):format(letter)})
      local wanted = "^400\n\ninvalid: .*limits: " .. limit .. " = 401 .* 400 .*ulimit %-H" .. letter .. "[^\n]*\n$"
      assert.message(out .. err).truthy(out:find(wanted))
    end
  end)

  -- The kernel's keyrings are no namespace's: what a process inherits it may read and change.
  it("has a session keyring of its own", function()
    local calls = ({x86_64 = {248, 250}, aarch64 = {217, 219}})[host("uname -m")]
    assert(calls, "the numbers of add_key and keyctl on this machine are not known here")
    local add_key, keyctl = calls[1], calls[2]
    local dir = helper.tmpdir()
    -- KEYCTL_JOIN_SESSION_KEYRING is 1, the session keyring -3.
    local with_key = helper.write(dir .. "/with_key.pl", ([[
      syscall(%d, 1, 0) > 0 or do { print "no keyrings: $!\n"; exit 0 };
      my ($type, $name, $payload) = ("user", "hostsecret", "payload of the host");
      my $id = syscall(%d, $type, $name, $payload, length($payload), -3);
      $id > 0 or die "add_key: $!";
      $ENV{KEY} = $id;
      exec @ARGV;
    ]]):format(keyctl, add_key))
    -- KEYCTL_READ is 11, KEYCTL_UPDATE 2.
    local look = ([[
      my $ring = "\0" x 4096;
      my $n = syscall(%d, 11, -3, $ring, 4096, 0);
      print "ring $n\n";
      for my $id ($ENV{KEY}, unpack("l*", substr($ring, 0, $n > 0 ? $n : 0))) {
        my ($payload, $new) = ("\0" x 256, "changed");
        print "read ", syscall(%d, 11, $id + 0, $payload, 256, 0), " update ", syscall(%d, 2, $id + 0, $new, 7), "\n";
      }
    ]]):format(keyctl, keyctl, keyctl)
    local recipe = helper.recipe(([==[
      local nsbx = require "nsbx"
      local sb <close> = nsbx.create{}
      print(sb:exec("perl", {"-e", [=[%s]=]}, {env = {KEY = os.getenv "KEY"}}).stdout)
    ]==]):format(look))
    local status, out, err = helper.run({recipe}, {prefix = "perl " .. with_key})
    assert.message(err).are.equal(0, status)
    if out:find("^no keyrings: ") then
      pending(out)
    end
    assert.are.equal("ring 0\nread -1 update -1\n\n", out)
  end)

  it("refuses a limit that it cannot hold, by name", function()
    local ok, err = pcall(nsbx.local_backend, {limits = {memory = 1 << 20}})
    assert.is_false(ok)
    assert.truthy(tostring(err):find("memory", 1, true))
    assert.truthy(tostring(err):find("memory_per_process", 1, true))
  end)

  it("mounts what it is given, read-only or not", function()
    local dir = host("mktemp -d")
    os.execute(("chmod 777 %s && echo given > %s/f && chmod 666 %s/f"):format(dir, dir, dir))
    finally(function() os.execute("rm -rf " .. dir) end)
    with_sandbox({read_only = {["/data/ro"] = dir}, read_write = {["/data/rw"] = dir}}, function(sb)
      assert.are.equal("given", sh(sb, "cat /data/ro/f"))
      assert.are_not.equal(0, sb:exec("/bin/sh", {"-c", "echo > /data/ro/f"}).exit_code)
      sh(sb, "echo changed > /data/rw/f")
      assert.are.equal("changed\n", sb:read_file("/data/ro/f"))
      sb:write_file("/data/rw/g", "by file operation")
      assert.has_error(function() sb:write_file("/data/ro/g", "no") end)
    end)
    assert.are.equal("changed", host("cat " .. dir .. "/f"))
    assert.are.equal("by file operation", host("cat " .. dir .. "/g"))
  end)

  it("keeps a workspace that it is given", function()
    local dir = host("mktemp -d")
    os.execute("chmod 777 " .. dir)
    finally(function() os.execute("rm -rf " .. dir) end)
    with_sandbox({workspace = dir}, function(sb)
      sb:write_file("made", "inside")
      assert.are.equal("/workspace", sb.root_dir)
    end)
    assert.are.equal("inside", host("cat " .. dir .. "/made"))
  end)

  it("tells where its workspace is, after its end too when it is still there", function()
    local dir = host("mktemp -d")
    os.execute("chmod 777 " .. dir)
    local kept
    finally(function() os.execute("rm -rf " .. dir .. " " .. (kept or "")) end)
    local function of(options)
      local sb = nsbx.local_backend(options):create()
      local before = sb.workspace
      sb:write_file("made", "inside")
      sb:destroy()
      assert.are.equal("linux-namespace", sb.environment)
      return before, sb.workspace
    end
    local before, after = of({workspace = dir})
    assert.are.same({dir, dir}, {before, after})
    before, kept = of({keep = true})
    assert.are.equal(before, kept)
    assert.are.equal("inside", host("cat " .. kept .. "/made"))
    before, after = of({})
    assert.is_nil(after)
    assert.is_false(helper.exists(before))
  end)

  it("names a workspace that it could not write", function()
    local dir = host("mktemp -d")
    os.execute("chmod 555 " .. dir)
    finally(function() os.execute("rm -rf " .. dir) end)
    local err = select(2, pcall(with_sandbox, {workspace = dir}, function() end))
    assert.are.equal("forbidden", err.code)
    assert.truthy(err.message:find(dir, 1, true))
  end)

  it("shares the host's network when told so", function()
    with_sandbox({network = true}, function(sb)
      assert.are.equal(host("ls /proc/sys/net/ipv4/conf | sort"), sh(sb, "ls /proc/sys/net/ipv4/conf | sort"))
    end)
  end)

  -- bwrap that dies before it tied its child to its life would leave that child waiting for ever.
  it("leaves nothing when its making is cut short", function()
    helper.agents_may_end_badly = true -- what is cut short is killed
    local tmp = host("mktemp -d")
    os.execute("chmod 777 " .. tmp)
    finally(function() os.execute("rm -rf " .. tmp) end)
    local program = helper.program
    local loop = "local n = require [[nsbx]] while true do local s <close> = n.create{} end"
    local short = "local b = require [[nsbx]].local_backend{} for i = 1, 60 do "
      .. "local ok, s = pcall(b.create, b, {timeout = 0.0005 * i}) if ok then s:close() end end"
    helper.run({"-e", short}, {prefix = "TMPDIR=" .. tmp})
    for i = 1, 20 do
      local command = helper.start(("env TMPDIR=%s %s -e '%s'"):format(tmp, program, loop))
      nsbx.sleep(0.01 + i * 0.007)
      helper.signal(command, "KILL")
      helper.ended(command)
    end
    assert.is_true(helper.eventually(function() return host("pgrep -f " .. tmp .. "/[n]sbx-") == "" end))
  end)

  it("is gone within a second when its host is killed, and swept by the next", function()
    local tmp = host("mktemp -d")
    os.execute("chmod 777 " .. tmp)
    finally(function() os.execute("rm -rf " .. tmp) end)
    local mark = helper.mark()
    local recipe = tmp .. "/recipe.lua"
    local f = assert(io.open(recipe, "w"))
    f:write(([[
      local nsbx = require "nsbx"
      local sb = nsbx.local_backend{}:create{}
      sb:exec("/bin/sh", {"-c", "mkdir shut && touch shut/f && chmod 0 shut; ln -s / all"})
      sb:exec("/bin/sh", {"-c", "setsid sleep %s & :"})
      io.stdout:write("ready\n") io.stdout:flush()
      sb:exec("sleep", {"%s"})
    ]]):format(mark, mark))
    f:close()
    local program = helper.program
    local pipe <close> = assert(io.popen(("TMPDIR=%s sh -c 'echo $$; exec %s %s' 2>&1"):format(tmp, program, recipe)))
    local pid = pipe:read("l")
    assert.are.equal("ready", pipe:read("l"))
    assert.are.equal("1", host("ls " .. tmp .. "/nsbx-* | grep -c '^local-'"))
    os.execute("kill -9 " .. pid)
    local deadline = nsbx.now() + 1
    local left
    repeat
      left = host("ps -eo args= | grep -c '^sleep " .. mark .. "'")
      nsbx.sleep(0.02)
    until left == "0" or nsbx.now() > deadline
    assert.are.equal("0", left)
    assert.are.equal("", host("grep -l " .. tmp .. " /proc/[0-9]*/mounts"))
    -- The next create in the same place removes what was left, the shut directory too, and follows no link.
    local create = "require [[nsbx]].local_backend{}:create{}:destroy()"
    os.execute(("TMPDIR=%s %s -e '%s'"):format(tmp, program, create))
    assert.are.equal("", host("ls -A " .. tmp .. "/nsbx-*"))
  end)
end)
