-- name: describe_target
-- What COPY does not do as INSERT does: row security, rules, refused identities. Bytes with all partitions, and whether
-- an index finds the rows of a range or of a batch: a BRIN one by each of its columns, another one by its first.
select c.relrowsecurity
        or exists (select from pg_rewrite r where r.ev_class = c.oid and r.ev_type = '3' and r.ev_enabled <> 'D')
        or exists (select from pg_attribute a where a.attrelid = c.oid and a.attidentity = 'a' and not a.attisdropped),
    pg_relation_size(c.oid) + coalesce((select sum(pg_relation_size(t.relid)) from pg_partition_tree(c.oid) t), 0),
    exists (
        select from pg_index i join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam
        join pg_attribute a on a.attrelid = c.oid
            and (a.attnum = i.indkey[0] or (m.amname = 'brin' and a.attnum = any (i.indkey)))
        where i.indrelid = c.oid and i.indisvalid and i.indpred is null and a.attname in ('_offset', '_batch_id'))
from pg_class c
where c.oid = {target}::regclass
