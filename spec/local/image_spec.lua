-- root_fs: an image's files come along, its links do not lead out of it.
local helper = require "helper"
local nsbx = require "nsbx"

describe("an image #user", function()
  local dir, image

  -- An image without programs of its own (the host's /usr is mounted into it), and something of the host that it must
  -- not show.
  before_each(function()
    dir = helper.tmpdir()
    image = dir .. "/image"
    local made = ([[cd %s && chmod 755 . && mkdir -m 755 image private && echo secret >private/f && chmod 644 private/f
      for name in bin sbin lib lib32 lib64 libx32; do ln -s usr/$name image/$name; done]]):format(dir)
    assert(os.execute(made))
  end)

  local function sh(text)
    assert(os.execute(("cd %s && %s"):format(image, text)))
  end

  local function open(options)
    options.root_fs = image
    options.read_only = options.read_only or {}
    options.read_only["/usr"] = "/usr"
    return helper.sandbox(options)
  end

  -- Why there is no such sandbox.
  local function refused(options)
    local ok, err = pcall(open, options)
    assert.is_false(ok)
    assert.message(tostring(err)).are.equal("invalid", err.code)
    return err.message
  end

  it("gives its files, and its links as links", function()
    sh("mkdir etc opt && echo ours >etc/release && ln -s ../../private etc/out && echo x >etc/passwd && echo y >opt/f")
    sh("ln -s ../private gone && ln -s " .. dir .. "/private away")
    local sb <close> = open{}
    assert.are.equal("ours\n", sb:exec("cat", {"/etc/release"}).stdout)
    assert.are.equal("y\n", sb:exec("cat", {"/opt/f"}).stdout)
    assert.are.equal("group\nout\npasswd\nrelease\n", sb:exec("ls", {"/etc"}).stdout)
    assert.truthy(sb:exec("cat", {"/etc/passwd"}).stdout:find("sandbox:x:1000", 1, true))
    for _, link in ipairs{"/gone", "/away", "/etc/out"} do
      assert.message(link).are.equal("", sb:exec("cat", {link .. "/f"}).stdout)
    end
  end)

  it("without /etc gets one", function()
    local sb <close> = open{}
    assert.are.equal("group\npasswd\n", sb:exec("ls", {"/etc"}).stdout)
  end)

  it("is refused when its /etc is a link", function()
    for _, target in ipairs{dir .. "/private", "../private", "nowhere"} do
      sh("ln -sfn " .. target .. " etc")
      local message = refused{}
      assert.message(message).truthy(message:find(image .. "/etc' is a link", 1, true))
    end
  end)

  it("may itself be named by a link", function()
    assert(os.execute(("mv %s %s/real && ln -s real %s"):format(image, dir, image)))
    local sb <close> = open{}
    assert.are.equal("group\npasswd\n", sb:exec("ls", {"/etc"}).stdout)
  end)

  it("does not choose where the host's directories are mounted", function()
    sh("mkdir opt etc && ln -s /oldroot" .. dir .. " srv && ln -s ../../private opt/link && ln -s ../opt etc/x")
    for _, target in ipairs{"/srv", "/srv/made", "/opt/link", "/opt/link/made", "/etc/x/made", "/lib/made"} do
      for _, option in ipairs{"read_only", "read_write"} do
        local message = refused{[option] = {[target] = dir .. "/private"}}
        assert.message(message).truthy(message:find(option .. ": '" .. image, 1, true))
      end
    end
    assert.is_false(helper.exists(dir .. "/made"))
    assert.is_false(helper.exists(dir .. "/private/made"))
  end)

  it("cannot hinder a mount where nothing of it is", function()
    sh("ln -s ../private run && ln -s ../private tmp")
    local sb <close> = open{read_only = {["/run/data"] = dir .. "/private", ["/tmp/data"] = dir .. "/private"}}
    assert.are.equal("secret\nsecret\n", sb:exec("cat", {"/run/data/f", "/tmp/data/f"}).stdout)
  end)
end)

-- A directory that a sandbox has written to, mounted again.
describe("a mount inside of another #user", function()
  local dir
  before_each(function()
    dir = helper.tmpdir()
    assert(os.execute(("cd %s && chmod 755 . && mkdir inner outer victim && chmod 777 inner outer victim")
      :format(dir)))
  end)

  it("works where a directory is", function()
    helper.write(dir .. "/inner/f", "found")
    assert(os.execute("mkdir -m 777 " .. dir .. "/outer/sub"))
    local sb <close> = nsbx.local_backend{
      workspace = dir .. "/outer",
      read_only = {["/workspace/sub"] = dir .. "/inner", ["/data"] = dir .. "/outer", ["/data/sub"] = dir .. "/inner"},
    }:create{}
    assert.are.equal("foundfound", sb:exec("cat", {"/workspace/sub/f", "/data/sub/f"}).stdout)
  end)

  it("is there in whatever order they are named, read-only or not", function()
    assert(os.execute("mkdir -m 777 " .. dir .. "/outer/sub; echo found >" .. dir .. "/inner/f"))
    local outer, inner = dir .. "/outer", dir .. "/inner"
    for _, options in ipairs{
      {read_only = {["/a"] = outer, ["/a/sub"] = inner, ["/b"] = outer, ["/b/sub"] = inner, ["/c"] = outer,
        ["/c/sub"] = inner}},
      {read_write = {["/a"] = outer, ["/b"] = outer, ["/c"] = outer},
        read_only = {["/a/sub"] = inner, ["/b/sub"] = inner, ["/c/sub"] = inner}},
    } do
      local backend <close> = nsbx.local_backend(options)
      local sb <close> = backend:create{}
      assert.are.equal("found\nfound\nfound\n", sb:exec("cat", {"/a/sub/f", "/b/sub/f", "/c/sub/f"}).stdout)
      assert.are_not.equal(0, sb:exec{shell = "echo >/a/sub/f"}.exit_code)
    end
  end)

  it("is refused where a link is", function()
    do
      local sb <close> = nsbx.local_backend{workspace = dir .. "/outer"}:create{}
      sb:exec("ln", {"-s", "/oldroot" .. dir .. "/victim", "sub"})
    end
    for _, options in ipairs{
      {workspace = dir .. "/outer", read_only = {["/workspace/sub/made"] = dir .. "/inner"}},
      {workspace = dir .. "/outer", read_write = {["/workspace/sub"] = dir .. "/inner"}},
      {read_write = {["/data"] = dir .. "/outer"}, read_only = {["/data/sub/made"] = dir .. "/inner"}},
      {read_only = {["/data"] = dir .. "/outer", ["/data/sub"] = dir .. "/inner"}},
    } do
      local backend <close> = nsbx.local_backend(options)
      local ok, err = pcall(backend.create, backend, {})
      assert.is_false(ok)
      assert.message(tostring(err)).are.equal("invalid", err.code)
      assert.message(err.message).truthy(err.message:find(dir .. "/outer/sub' is a link", 1, true))
    end
    assert.are.equal("", helper.output_of("ls " .. dir .. "/victim"))
  end)
end)
