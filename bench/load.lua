-- Sends the requests of a file in a loop and prints the results as JSON.
-- wrk … -s load.lua URL -- FILE NUMBER: the file holds raw requests with a NUL after each. Sixteen letters N in one
-- are a placeholder for a number that differs each time, counted from NUMBER.
local PLACE = ('N'):rep(16)
local requests, at, number = {}, 0, 0

function init(args)
  local file = assert(io.open(args[1], 'rb'))
  for text in file:read('*a'):gmatch('[^%z]+') do
    local from, to = text:find(PLACE, 1, true)
    local before, after
    if from then before, after = text:sub(1, from - 1), text:sub(to + 1) end
    requests[#requests + 1] = { text = text, before = before, after = after }
  end
  file:close()
  number = tonumber(args[2])
end

function request()
  at = at % #requests + 1
  local request = requests[at]
  if not request.before then return request.text end
  number = number + 1
  return request.before .. ('%016.0f'):format(number) .. request.after
end

function done(summary, latency)
  local errors = summary.errors
  io.write(('\n{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"refused":%d,"broken":%d}\n'):format(
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
