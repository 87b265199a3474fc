-- Evidence names the fields that no column declares. An attempt that an earlier version has staged has named none.

do $$
declare
    evidence regclass;
begin
    for evidence in
        select c.oid::regclass
        from pg_class c
        join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'batchledger_staging' and c.relkind = 'r' and c.relname ~ '^b[0-9]+_a[0-9]+_visible$'
    loop
        execute format(
            'alter table %s add column field text, add column records bigint, add column first_offset bigint', evidence);
    end loop;
end
$$;
