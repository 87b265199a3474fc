-- The policies of each connection ask once. A name without a role has no number, so it gives nothing. pg_roles, a view of
-- two tables, took twice as long.
create or replace function batchledger.pipelines_of(who name) returns text[]
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select array_agg(g.pipeline)
    from batchledger.pipeline_role g
    where pg_has_role(who, to_regrole(quote_ident(g.role)), 'usage')
$$;
