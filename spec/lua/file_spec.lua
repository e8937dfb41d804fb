-- The sandbox's files: written, read, listed, walked. #agent
local helper = require("helper")
local nsbx = require("nsbx")

describe("files #agent", function()
  local sb
  setup(function() sb = helper.sandbox() end)
  teardown(function() sb:close() end)
  before_each(function() sb:exec({ shell = "rm -rf /workspace/* /workspace/.[a-z]*" }) end)

  local function stat(format, path) return (sb:exec("stat", { "-c", format, path }).stdout:gsub("\n", "")) end

  it("come back as they were written, in every size", function()
    for _, n in ipairs({ 0, 1, 4095, 4096, 18432, 1 << 20, (1 << 24) + 7 }) do
      local text = ("0123456789\0\255é\r\n"):rep(n // 16 + 1):sub(1, n)
      sb:write_file("file", text)
      assert.are.equal(tostring(n), stat("%s", "file"))
      assert.is_true(sb:read_file("file") == text)
    end
  end)

  it("are made with their directories, below the workspace or by full path", function()
    sb:write_file("a/b/c.txt", "deep")
    assert.are.equal("deep", sb:read_file("/workspace/a/b/c.txt"))
    sb:write_file("/workspace/a/d.txt", "full")
    assert.are.equal("full", sb:read_file("a/d.txt"))
  end)

  it("keep their mode when they are replaced, and are never half there", function()
    sb:write_file("script", "#!/bin/sh\necho one\n")
    sb:exec("chmod", { "750", "script" }, { check = true })
    sb:write_file("script", "#!/bin/sh\necho two\n")
    assert.are.equal("750", stat("%a", "script"))
    assert.are.equal("two\n", sb:exec("./script").stdout)
    assert.are.equal("script\n", sb:exec("ls", { "-A" }).stdout)
  end)

  it("are read in parts", function()
    sb:write_file("file", "0123456789")
    assert.are.equal("345", sb:read_file("file", { offset = 3, length = 3 }))
    assert.are.equal("012", sb:read_file("file", { length = 3 }))
    assert.are.equal("789", sb:read_file("file", { offset = 7 }))
    assert.are.equal("89", sb:read_file("file", { offset = 8, length = 100 }))
    assert.are.equal("", sb:read_file("file", { offset = 100, length = 1 }))
    assert.are.equal("", sb:read_file("file", { length = 0 }))
  end)

  it("are read in chunks", function()
    local text = ("0123456789abcdef"):rep(1 << 17) -- 2 MiB
    sb:write_file("file", text)
    local function collect(options)
      local pieces = {}
      for chunk in sb:read_file_stream("file", options) do
        assert(#chunk > 0)
        pieces[#pieces + 1] = chunk
      end
      return table.concat(pieces), #pieces
    end
    local got, n = collect()
    assert.is_true(got == text and n > 1)
    assert.is_true(collect({ offset = 1000001 }) == text:sub(1000002))
    assert.is_true(collect({ offset = 5, length = 1000000 }) == text:sub(6, 1000005))
    sb:write_file("file", "")
    assert.are.equal("", (collect()))
  end)

  it("are let go of by a break", function()
    sb:exec("truncate", { "-s", "200M", "file" }, { check = true })
    for chunk in sb:read_file_stream("file") do -- luacheck: ignore 512
      assert.is_true(#chunk > 0)
      break
    end
    local next_chunk, stream = sb:read_file_stream("file")
    assert.is_truthy(next_chunk(stream))
    stream:close()
    stream:close()
    local ok, err = pcall(next_chunk, stream)
    assert.are.same({ false, "destroyed", "the file stream is closed" }, { ok, err.code, err.message })
    assert.are.equal("ready", sb.status)
  end)

  it("are listed, with what they are", function()
    sb:exec({ shell = "mkdir d; printf 12345 > f; chmod 640 f; ln -s f l; mkfifo p; touch .h; touch -d @1700000000 f" })
    local seen = {}
    for i, entry in ipairs(sb:list_files("/workspace")) do
      seen[i] = entry.path .. " " .. entry.type
      if entry.path == "/workspace/f" then
        assert.are.same({ 5, 416, 1700000000 }, { entry.size, entry.mode, entry.mtime // 1 | 0 })
      end
    end
    assert.are.same({
      "/workspace/.h file",
      "/workspace/d directory",
      "/workspace/f file",
      "/workspace/l symlink",
      "/workspace/p other",
    }, seen)
    assert.are.same(seen[2], sb:list_files(".")[2].path .. " directory")
    assert.are.same({}, sb:list_files("d"))
  end)

  it("are listed when there are many", function()
    sb:exec({ shell = "mkdir many; cd many; seq -f 'file %05g' 1200 | tr '\\n' '\\0' | xargs -0 touch", check = true })
    local list = sb:list_files("many")
    assert.are.equal(1200, #list)
    assert.are.equal("/workspace/many/file 00001", list[1].path)
    assert.are.equal("/workspace/many/file 01200", list[1200].path)
  end)

  describe("are walked", function()
    local function walk(path, options)
      local found = {}
      for entry in sb:walk_files(path, options) do
        assert.are.equal("file", entry.type)
        found[#found + 1] = entry.path:gsub("^/workspace/", "")
      end
      if not (options and options.order) then
        table.sort(found)
      end
      return found
    end
    before_each(function()
      sb:exec({ shell = "mkdir -p t/a/b t/c t/.hid; touch t/1.lua t/a/2.lua t/a/b/3.txt t/c/4.lua t/.hid/5.lua t/.6" })
    end)

    it("all, below a directory", function()
      assert.are.same({ "t/1.lua", "t/a/2.lua", "t/a/b/3.txt", "t/c/4.lua" }, walk("t"))
      assert.are.same({ "t/1.lua", "t/a/2.lua", "t/a/b/3.txt", "t/c/4.lua" }, walk("t", { order = "sorted" }))
    end)

    it("by pattern, depth, number, and with what is hidden", function()
      assert.are.same({ "t/1.lua", "t/a/2.lua", "t/c/4.lua" }, walk("t", { pattern = "**/*.lua" }))
      assert.are.same({ "t/.6", "t/.hid/5.lua", "t/1.lua", "t/a/2.lua", "t/a/b/3.txt", "t/c/4.lua" },
        walk("t", { include_hidden = true }))
      assert.are.equal(2, #walk("t", { max_entries = 2 }))
      assert.is_true(#walk("t", { max_depth = 1 }) < 4)
    end)

    it("by a pattern whose bracket or brace is not closed, which stands for itself", function()
      sb:exec({ shell = "cd t; touch '[a' '{a' a '{b,c'" })
      assert.are.same({ "t/[a" }, walk("t", { pattern = "[a" }))
      assert.are.same({ "t/{a" }, walk("t", { pattern = "{a" }))
      assert.are.same({ "t/{b,c" }, walk("t", { pattern = "{b,c" }))
    end)

    it("by no pattern that could not be meant", function()
      for _, wrong in ipairs({ "./", "/t", "a/../b", ("x"):rep(4097) }) do
        local ok, err = pcall(walk, "t", { pattern = wrong })
        assert.is_false(ok)
        assert.are.same({ "invalid", "walk_invalid_pattern" }, { err.code, err.reason })
        assert.is_truthy(err.message:find("the pattern is refused: ", 1, true))
      end
    end)

    it("until a break", function()
      sb:exec({ shell = "mkdir w; cd w; for d in $(seq 20); do mkdir $d; (cd $d; touch $(seq 60)); done" })
      local n = 0
      for _ in sb:walk_files("w") do -- luacheck: ignore 512
        n = n + 1
        if n == 3 then
          break
        end
      end
      assert.are.equal(3, n)
      assert.are.equal(1200, #walk("w"))
    end)

    it("up to the visits that are allowed, and no further in silence", function()
      local ok, err = pcall(walk, "t", { max_visited_entries = 3 })
      assert.is_false(ok)
      assert.are.equal("limit", err.code)
    end)

    it("not at all where nothing is", function()
      local ok, err = pcall(walk, "nowhere")
      assert.are.same({ false, "not_found", "ENOENT" }, { ok, err.code, err.errno })
    end)
  end)

  it("are written and read by many tasks at once", function()
    local jobs = {}
    for i = 1, 30 do
      jobs[i] = function()
        local text = (i .. "\n"):rep(10000)
        sb:write_file("many/" .. i, text)
        return sb:read_file("many/" .. i) == text
      end
    end
    for _, same in ipairs(nsbx.all(jobs)) do
      assert.is_true(same)
    end
  end)

  it("whose write is cancelled stay as they were", function()
    sb:write_file("file", "before")
    local task = nsbx.spawn(function() sb:write_file("file", ("x"):rep(64 << 20)) end)
    nsbx.sleep(0.005)
    task:cancel()
    local ok, err = pcall(task.join, task)
    if not ok then
      assert.are.equal("cancelled", err.code)
      assert.are.equal("before", sb:read_file("file"))
    end
    assert.is_true(helper.eventually(function() return sb:exec("ls", { "-A" }).stdout == "file\n" end))
  end)
end)
