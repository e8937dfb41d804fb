-- On a machine that cannot isolate, the local backend says what is missing and what mends it, and leaves nothing.
local helper = require "helper"

local attempt = [[
  local nsbx = require "nsbx"
  local sb, err = nsbx.try(function() return nsbx.local_backend{}:create{} end)
  if sb then
    sb:destroy()
    print "made one"
  else
    print(err.code, err.reason or "-", err.message)
  end
]]

local function on(mode)
  local prefix = mode and ("python3 spec/support/restricted.py %s"):format(mode) or ""
  local status, out, err = helper.run({helper.recipe(attempt)}, {prefix = prefix})
  assert.are.equal("", err)
  assert.are.equal(0, status)
  return out
end

local function says(out, ...)
  for _, words in ipairs{...} do
    assert.message(out).truthy(out:find(words, 1, true))
  end
end

describe("the local backend", function()
  it("names the sysctl when user namespaces are off #user", function()
    says(on "no-userns", "unsupported\tuserns\t", "bwrap: Creating new namespace failed",
      "sysctl -w user.max_user_namespaces")
  end)

  it("names the filter when user namespaces are refused #user", function()
    says(on "seccomp", "unsupported\tuserns\t", "bwrap: No permissions to create new namespace", "seccomp")
  end)

  it("names the package when bubblewrap is missing #user", function()
    local status, out = helper.run({helper.recipe(attempt)}, {prefix = "PATH=/nowhere"})
    assert.are.equal(0, status)
    says(out, "unsupported\tbubblewrap_missing\t", "install the package bubblewrap")
  end)

  describe("as root", function()
    local it_as_root = helper.is_root and it or function(name)
      pending(name .. " (only root can make such a machine)")
    end

    it_as_root("says that /proc is masked", function()
      says(on "masked-proc", "unsupported\tmasked_proc\t", "bwrap: Can't mount proc on /newroot/proc", "masked")
    end)

    it_as_root("says that its uid cannot reach its files", function()
      local dir = helper.tmpdir() -- mode 0700
      local _, out = helper.run({helper.recipe(attempt)}, {prefix = "TMPDIR=" .. dir})
      says(out, "forbidden\t-\t", "65534", dir, "TMPDIR")
    end)

    it_as_root("says that its uid does not exist", function()
      says(on "few-uids", "unsupported\t-\t", "65534", "uid_map")
    end)
  end)

  it("makes one on this machine #user", function()
    assert.are.equal("made one\n", on())
  end)
end)
