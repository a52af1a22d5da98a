-- Gives the color another value with each request: nothing changes when it has the value already.
local requests, count = {}, 0
function init()
  for index = 1, 100 do
    requests[index] = wrk.format("PUT", nil, nil, string.format('{"value":"#%06x"}', index))
  end
end

function request()
  count = count % #requests + 1
  return requests[count]
end

