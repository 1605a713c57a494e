# python3 follow.py copy.db: keeps a copy of all events of a project in SQLite, and prints how many it has.
import json, os, sqlite3, sys
from urllib.parse import quote
from urllib.request import Request, urlopen

feed = f"{os.environ['FLOWTRAIL_URL']}/projects/{quote(os.environ['FLOWTRAIL_PROJECT'], '')}/events"
wait = os.environ.get('WAIT', '0')  # 30 to go on and receive events as they happen

copy = sqlite3.connect(sys.argv[1])
copy.execute('CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY, position INTEGER UNIQUE, event TEXT)')
is_more = True
while is_more:
    # The copy's own greatest position, committed with its events: nothing is lost or read twice, wherever this stops.
    (after,) = copy.execute('SELECT coalesce(max(position), 0) FROM events').fetchone()
    request = Request(f'{feed}?direction=ASC&limit=1000&after={after}&wait={wait}')
    request.add_header('X-Api-Key', os.environ['FLOWTRAIL_KEY'])
    with urlopen(request, timeout=60) as response, copy:
        rows = [(event['event_id'], event['position'], json.dumps(event)) for event in json.load(response)]
        copy.executemany('INSERT OR REPLACE INTO events VALUES (?, ?, ?)', rows)
        is_more = response.headers['Link'] is not None or wait != '0'
print(copy.execute('SELECT count(*) FROM events').fetchone()[0])
