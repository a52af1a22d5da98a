-- Creates a color, and deletes it once it is known to exist, so that the list does not grow.
local threads = 0
function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

local created, count = {}, 0
local prefix, before, after
function init()
  prefix = string.format("bench-%03d-", number)
  local create = wrk.format("POST", "/colors", nil, '{"name":"' .. prefix .. '12345678","value":"#112233"}')
  before, after = create:match("^(.*" .. prefix:gsub("%-", "%%-") .. ")12345678(.*)$")
end

function request()
  local name = table.remove(created)
  if name then
    return wrk.format("DELETE", "/colors/" .. name)
  end
  count = count + 1
  return before .. string.format("%08d", count) .. after
end

function response(status, headers, content)
  if status == 201 then
    created[#created + 1] = content:match('"name":"([^"]*)"')
  end
end
