-- All tables of attempts, with what the ledger knows of them. One snapshot: an attempt is there before its tables are.
select t.relname, found.parts[1]::bigint, found.parts[2]::int, b.pipeline, b.state, b.attempt, a.outcome, a.ended_at,
    b.published_at
from pg_class t
join pg_namespace n on n.oid = t.relnamespace and n.nspname = %(schema)s
cross join lateral regexp_match(t.relname, '^b(\d{1,18})_a(\d{1,9})_(?:open|rows|aside|files|listed|visible|quarantine)$') found (parts)
left join batchledger.batch b on b.batch_id = found.parts[1]::bigint
left join batchledger.attempt a on a.batch_id = b.batch_id and a.number = found.parts[2]::int
where t.relkind = 'r' and found.parts is not null
order by 2, 3, 1
