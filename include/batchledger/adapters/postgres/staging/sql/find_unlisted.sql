-- Since when files are written that no branch holds yet: the table that lists them is there before they are.
select min(a.opened_at)
from pg_class t
join pg_namespace n on n.oid = t.relnamespace and n.nspname = %(schema)s
cross join lateral regexp_match(t.relname, '^b(\d{1,18})_a(\d{1,9})_(?:files|listed)$') found (parts)
join batchledger.batch b on b.batch_id = found.parts[1]::bigint and b.attempt = found.parts[2]::int
join batchledger.attempt a on a.batch_id = b.batch_id and a.number = b.attempt
where t.relkind = 'r' and b.state = 'planned'
