-- luacheck's view of the tree: plain Lua 5.4 in the modules, busted's names in the specs.
std = "lua54"
max_line_length = 120
self = false -- a method that does not need its object is still a method
cache = false
files["spec"] = { std = "+busted" }
