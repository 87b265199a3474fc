-- name: describe_watched
select c.oid, c.relkind::text, pg_catalog.row_security_active(c.oid),
    pg_catalog.has_table_privilege(c.oid, 'select'), pg_catalog.has_any_column_privilege(c.oid, 'select')
from pg_catalog.pg_class c
where c.oid = pg_catalog.to_regclass({name})

-- name: describe_part
with recursive bases as (
    select a.atttypid as type
    from pg_catalog.pg_attribute a
    where a.attrelid = %(relation)s and a.attname = %(column)s and a.attnum > 0 and not a.attisdropped
    union all
    select t.typbasetype from bases b join pg_catalog.pg_type t on t.oid = b.type where t.typtype = 'd'
)
select t.typname::text, t.typrelid
from bases b join pg_catalog.pg_type t on t.oid = b.type
where t.typtype <> 'd'

-- name: find_replica_moment
select pg_catalog.pg_is_in_recovery(), pg_catalog.pg_last_xact_replay_timestamp()

-- name: list_relations
select n.nspname || '.' || c.relname
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^(pg_|information_schema$|batchledger)'
order by 1
limit 10000

-- name: list_columns
select a.attname::text
from pg_catalog.pg_attribute a
where a.attrelid = %s and a.attnum > 0 and not a.attisdropped
order by a.attnum
