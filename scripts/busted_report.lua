-- busted's output for scripts/suite.py: one line an event, appended to the file $NSBX_REPORT, so that what a test
-- prints cannot be taken for a result. A file without the line "end" is a run that died. The file is opened for each
-- line: a handle held open would be one more descriptor in the process under test.
local base = require("busted.outputHandlers.base")
local path = assert(os.getenv("NSBX_REPORT"), "NSBX_REPORT names the report's file")

local escapes = { ["\\"] = "\\\\", ["\t"] = "\\t", ["\n"] = "\\n", ["\r"] = "\\r" }

local function say(...)
  local fields = table.pack(...)
  for i = 1, fields.n do
    fields[i] = tostring(fields[i]):gsub("[\\\t\n\r]", escapes)
  end
  local file = assert(io.open(path, "a"))
  file:write(table.concat(fields, "\t"), "\n")
  file:close()
end

local function text_of(message)
  if type(message) == "table" then
    return message.message or require("pl.pretty").write(message)
  end
  return message == nil and "an error that is nil" or message
end

local function where_of(debug)
  return debug and debug.short_src and (debug.short_src .. ":" .. (debug.currentline or "?")) or ""
end

return function()
  local busted = require("busted")
  local handler = base()

  local function failed(element, _, message, debug)
    local trace = debug and debug.traceback or ""
    say("fail", handler.getFullName(element), where_of(debug or element.trace), text_of(message), trace)
    return nil, true
  end

  handler.testStart = function(element)
    say("start", handler.getFullName(element))
    return nil, true
  end
  handler.testEnd = function(element, _, status)
    local pending = handler.pendings[#handler.pendings]
    if status == "success" then
      say("pass", handler.getFullName(element))
    elseif status == "pending" then
      say("skip", handler.getFullName(element), pending and pending.message or "pending")
    end
    return nil, true
  end
  handler.suiteEnd = function()
    say("end")
    return nil, true
  end

  busted.subscribe({ "test", "start" }, handler.testStart)
  busted.subscribe({ "test", "end" }, handler.testEnd)
  busted.subscribe({ "suite", "end" }, handler.suiteEnd)
  busted.subscribe({ "failure" }, failed)
  busted.subscribe({ "error" }, failed)
  return handler
end
