-- name: drop_granted_twice
delete from batchledger.pipeline_role g
where g.pipeline = %(pipeline)s
    and exists (select from batchledger.pipeline_role t where t.role = g.role and t.pipeline = %(to)s)

-- name: note_former_name
-- A name that the pipeline takes back is no former one any more.
update batchledger.pipeline
set former_names = array_append(array_remove(former_names, %(to)s), %(pipeline)s)
where name = %(pipeline)s

-- name: copy_pipeline
insert into batchledger.pipeline
select (jsonb_populate_record(p, %(changed)s)).*
from batchledger.pipeline p
where p.name = %(pipeline)s

-- name: list_named_tables
-- The tables with a column "pipeline", whether a trigger refuses every change of their rows, and whether a row keeps the
-- name that it was written under.
select c.relname, t.is_only_added, exists (
        select from pg_attribute k where k.attrelid = c.oid and k.attname = 'recorded_as' and not k.attisdropped)
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attname = 'pipeline' and not a.attisdropped
cross join lateral (
    select exists (
        select from pg_trigger t
        where t.tgrelid = c.oid and t.tgfoid = 'batchledger.refuse_change'::regproc) as is_only_added) t
where c.relnamespace = 'batchledger'::regnamespace and c.relkind = 'r'
order by t.is_only_added, c.relname
