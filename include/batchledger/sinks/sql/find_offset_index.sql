-- Whether an index finds rows by their offsets.
select exists (
    select from pg_index i
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
    where i.indrelid = %s::regclass and i.indisvalid and i.indpred is null and a.attname = '_offset'
)
