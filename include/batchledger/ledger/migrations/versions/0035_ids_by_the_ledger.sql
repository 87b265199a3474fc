-- A right to insert into a whole table is also the right to choose its ids. Roles that were granted before keep the
-- right to insert into the columns that runs write.
do $$
declare
    one record;
    who text;
begin
    for one in
        select format('batchledger.%I', listed.name) as table, listed.written, array(
            select distinct a.grantee from pg_class c, aclexplode(c.relacl) a
            where c.oid = format('batchledger.%I', listed.name)::regclass
                and a.privilege_type = 'INSERT' and a.grantee <> c.relowner) as grantees
        from (values
            ('added_column', 'pipeline, name, batch_id'),
            ('batch', 'pipeline, lane, state, lag_left_records, planned_by, delivery, request_key, origin, is_dry_run, '
                'published_rows, published_at'),
            ('decision', 'pipeline, batch_id, kind, decided_by, reason, before, after, uid, host, request_id, '
                'requested_order'),
            ('incident', 'pipeline, kind, subject, severity, title, lines, command, batch_id, run, opened_at, seen_at'),
            ('notification', 'incident_id, channel, event, next_try_at'),
            ('payload_look', 'pipeline, batch_id, records, ranges, errors, looked_by, uid, host'),
            ('record_schema', 'pipeline, fingerprint, definition, first_batch_id, last_batch_id')
        ) as listed (name, written)
    loop
        for who in select case g when 0 then 'public' else quote_ident(pg_get_userbyid(g)) end from unnest(one.grantees) g loop
            -- Without "cascade" a role that has passed its right on would stop the migration.
            execute format('revoke insert on %s from %s cascade', one.table, who);
            execute format('grant insert (%s) on %s to %s', one.written, one.table, who);
        end loop;
    end loop;
end $$;
