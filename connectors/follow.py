# python3 follow.py copy.db: keeps a copy of all events of a project in SQLite, and prints how many it has.
import json, os, sqlite3, sys
from urllib.parse import quote
from urllib.request import Request, urlopen

project = f"{os.environ['FLOWTRAIL_URL'].rstrip('/')}/projects/{quote(os.environ['FLOWTRAIL_PROJECT'], '')}"
wait = os.environ.get('WAIT', '0')  # 30 to go on and receive events as they happen

def read(feed, after, wait='0'):
    request = Request(f'{project}/{feed}?direction=ASC&limit=1000&after={after}&wait={wait}')
    request.add_header('X-Api-Key', os.environ['FLOWTRAIL_KEY'])
    with urlopen(request, timeout=60) as response:
        return json.load(response), response.headers['Link'] is not None

copy = sqlite3.connect(sys.argv[1])
copy.execute('PRAGMA secure_delete = ON')  # overwrites what is erased
copy.execute('CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY, position INTEGER UNIQUE, event TEXT)')
copy.execute("CREATE INDEX IF NOT EXISTS contact ON events (json_extract(event, '$.contact_id'))")
copy.execute('CREATE TABLE IF NOT EXISTS erasures (position INTEGER PRIMARY KEY)')
copied = copy.execute("SELECT json_extract(event, '$.project_id') FROM events LIMIT 1").fetchone()
if copied and copied[0] != os.environ['FLOWTRAIL_PROJECT']:
    sys.exit(f'{sys.argv[1]} is a copy of the project {copied[0]}')
is_more = True
while is_more:
    # The copy's own greatest positions, committed with their rows: nothing is missed, wherever this stops.
    places = [copy.execute(f'SELECT coalesce(max(position), 0) FROM {table}').fetchone()[0] for table in ('events', 'erasures')]
    events, more_events = read('events', places[0], wait)
    # After the events, and in one transaction with them: they may have been erased meanwhile.
    erasures, more_erasures = read('erasures', places[1])
    with copy:
        rows = [(event['event_id'], event['position'], json.dumps(event)) for event in events]
        copy.executemany('INSERT OR REPLACE INTO events VALUES (?, ?, ?)', rows)
        of_contact = "json_extract(event, '$.contact_id') = :contact_id"
        copy.executemany(f'DELETE FROM events WHERE {of_contact} AND position < :position', erasures)
        copy.executemany('INSERT OR IGNORE INTO erasures VALUES (:position)', erasures)
    is_more = more_events or more_erasures or wait != '0'
print(copy.execute('SELECT count(*) FROM events').fetchone()[0])
