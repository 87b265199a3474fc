-- name: describe_relations
-- The target, then its partitions. The rule "_RETURN", for reading, is what makes a view.
select r.oid <> {target}::regclass, r.oid::regclass::text, c.relkind::text, c.relpersistence = 'u',
    array(
        select w.rulename::text from pg_rewrite w
        where w.ev_class = c.oid and w.is_instead and w.ev_type <> '1' and w.ev_enabled <> 'D' order by 1),
    c.relkind = 'r' and exists (select from pg_inherits i where i.inhparent = c.oid)
from (select {target}::regclass::oid as oid union select relid::oid from pg_partition_tree({target}::regclass)) r
join pg_class c on c.oid = r.oid
order by 1, 2
