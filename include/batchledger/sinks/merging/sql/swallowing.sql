-- name: find_swallowers
-- Parts of a table, or of its partitions, that may let a statement end well without doing to each row what it says.
with part as (
    select relid from pg_partition_tree({target}::regclass)
    union
    select {target}::regclass
)
select format('%s %I', case when t.tgtype & 64 > 0 then 'instead-of trigger' else 'before trigger' end, t.tgname)
from part join pg_trigger t on t.tgrelid = part.relid
where not t.tgisinternal and t.tgenabled <> 'D' and t.tgtype & 1 > 0 and t.tgtype & 66 > 0
union
select format('rule %I', r.rulename)
from part join pg_rewrite r on r.ev_class = part.relid
where r.rulename <> '_RETURN' and r.ev_enabled <> 'D'
union
select 'row security' from part where row_security_active(part.relid)
order by 1
