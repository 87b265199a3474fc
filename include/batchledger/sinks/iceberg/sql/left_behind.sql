-- name: list_attempts
-- What the ledger knows of attempts. A batch that was planned at another time belongs to another ledger.
select a.batch_id, a.number, a.planned_at, b.pipeline, b.state, b.attempt, t.outcome, t.ended_at, b.published_at
from unnest(%(batch_ids)s::bigint[], %(numbers)s::int[], %(planned_at)s::timestamptz[]) as a (batch_id, number, planned_at)
left join batchledger.batch b on b.batch_id = a.batch_id and b.planned_at = a.planned_at
left join batchledger.attempt t on t.batch_id = b.batch_id and t.number = a.number

-- name: find_unlisted
-- Since when tasks write files that no branch holds yet: the table that lists them is there before they are.
select min(a.opened_at)
from pg_class t
join pg_namespace n on n.oid = t.relnamespace and n.nspname = %(schema)s
cross join lateral regexp_match(t.relname, '^b(\d{1,18})_a(\d{1,9})_(?:files|listed)$') found (parts)
join batchledger.batch b on b.batch_id = found.parts[1]::bigint and b.attempt = found.parts[2]::int
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where t.relkind = 'r' and b.state = 'planned'
