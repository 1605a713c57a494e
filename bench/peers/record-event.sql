-- The minimum of recording a custom event: one row per commit, for each client in an entry of its own, which it looks up
-- once. pgbench treats every colon before a word as a variable, so texts with colons are passed in.
\if :is_chosen = 0
SELECT entry_id AS entry, created_at + interval '90 seconds' AS instant FROM entries
WHERE project_id = :project ORDER BY entry_id LIMIT 1 OFFSET :client_id \gset
\set is_chosen 1
\endif
INSERT INTO events (project_id, event_id, entry_id, timestamp, module_version_number, max_page_id, max_page_key,
  max_page_index, total_pages, event_type, custom_event_name, custom_event_props, recorded_at, position)
VALUES (
  :project,
  -- As long as a UUIDv7 and sorted as one.
  overlay(gen_random_uuid()::text PLACING overlay(
    lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') PLACING '-' FROM 9 FOR 0
  ) FROM 1 FOR 13),
  :entry, :instant, 2, 'p7', 'result', 6, 7, :type, 'coupon_shown', :props, now(),
  -- Months apart for each client, so that no two are the same.
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - :client_id * 10000000000000
);
