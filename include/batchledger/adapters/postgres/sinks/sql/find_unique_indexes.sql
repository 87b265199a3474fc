-- The key columns of each index that an "on conflict" can name; those of INCLUDE do not count.
select array(
    select a.attname::text
    from pg_attribute a
    where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1]))
from pg_index i
where i.indrelid = %(target)s::regclass and i.indisunique and i.indisvalid and i.indimmediate
    and i.indpred is null and i.indexprs is null
