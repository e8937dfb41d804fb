-- The parts of the module that read better in Lua. Gets the module's table and the primitives (lua/bind/module.c), and
-- puts its functions into the module.
local nsbx, core = ...

-- Values of f(...), or nil and the error: for failures that are no reason to stop.
local function values_or_error(ok, ...)
  if ok then
    return ...
  end
  return nil, (...)
end

function nsbx.try(f, ...)
  return values_or_error(pcall(f, ...))
end

-- The task whose error is the reason for giving up.
local function failed_one(tasks)
  local cancelled
  for _, task in ipairs(tasks) do
    local status = task:status()
    if status == "failed" then
      return task
    end
    cancelled = cancelled or (status == "cancelled" and task or nil)
  end
  return cancelled
end

local function check_list(list)
  if type(list) ~= "table" then
    core.misused("all", "argument 1 must be a list of tasks or functions, not " .. core.a_value(list))
  end
  for i, entry in ipairs(list) do
    if type(entry) ~= "function" and nsbx.type(entry) ~= "task" then
      core.misused("all", "entry " .. i .. " of the list must be a task or a function, not " .. core.a_value(entry))
    end
  end
end

-- Waits for every task of the list (functions are made tasks) and returns the list of their first results. When one
-- fails, or the wait itself is cancelled, the others are cancelled and waited for, and the error is raised.
function nsbx.all(list, ...)
  check_list(list)
  if select("#", ...) > 0 then
    core.misused("all", "too many arguments; it is called as nsbx.all(list) and has no options: "
      .. "a time is given by timeout= to what the tasks wait for")
  end
  local tasks = {}
  for i, entry in ipairs(list) do
    tasks[i] = type(entry) == "function" and nsbx.spawn(entry) or entry
  end
  local ok, well = pcall(core.wait_all, tasks)
  if not (ok and well) then
    local guilty = failed_one(tasks)
    for _, task in ipairs(tasks) do
      task:cancel()
    end
    for _, task in ipairs(tasks) do
      task:close()
    end
    if not ok then
      error(well, 0)
    end
    guilty:join()
  end
  local results = {}
  for i, task in ipairs(tasks) do
    results[i] = task:join()
  end
  return results
end

-- An exec with on_output: the output goes to the function as it comes, and is in the result as well.
core.run_streamed_by(function(running, on_output, combine)
  local process <close> = running
  local parts = { stdout = {}, stderr = {} }
  for stream, bytes in process:output() do
    table.insert(parts[combine and "stdout" or stream], bytes)
    on_output(stream, bytes)
  end
  local result = process:wait()
  result.stdout = table.concat(parts.stdout)
  result.stderr = table.concat(parts.stderr)
  return result
end)

-- The backend of nsbx.create: what nsbx.configure said, else what the environment says, else the local one.
local constructors = { ["local"] = nsbx.local_backend }
local configured
local default

local function names(set)
  local list = {}
  for name in pairs(set) do
    list[#list + 1] = "'" .. name .. "'"
  end
  table.sort(list)
  return table.concat(list, ", ")
end

local function make_backend(caller, name, options)
  local construct = constructors[name]
  if not construct then
    core.misused(caller, ("there is no backend '%s' (there are: %s)"):format(tostring(name), names(constructors)))
  end
  return construct(options)
end

function nsbx.configure(options)
  if type(options) ~= "table" then
    core.misused("configure", "argument 1 must be a table of options, not " .. core.a_value(options))
  end
  local rest = {}
  for key, value in pairs(options) do
    rest[key] = value
  end
  rest.backend = nil
  configured = make_backend("configure", options.backend or "local", rest)
end

function nsbx.create(options)
  if configured then
    return configured:create(options)
  end
  default = default or make_backend("create", os.getenv("NSBX_BACKEND") or "local")
  return default:create(options)
end
