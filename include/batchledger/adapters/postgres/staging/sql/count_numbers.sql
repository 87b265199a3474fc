select count(distinct s.key_hash),
    least(coalesce(sum(length.missing), 0), 9223372036854775807)::bigint,
    coalesce(sum(length.gaps), 0)::bigint,
    coalesce(sum(s.records - length.kept + length.again), 0)::bigint,
    coalesce(sum(length.late), 0)::bigint,
    count(*) filter (where s.is_restart),
    count(*) filter (where s.run = 0 and s.known_run is null and {has_start}),
    (select count(*) from {rows} where not {is_numbered})
from batchledger_series s
cross join lateral (
    select
        (select sum(upper(each)::numeric - lower(each)) from unnest(s.missing) as each) as missing,
        (select count(*) from unnest(s.missing)) as gaps,
        (select sum(upper(each) - lower(each)) from unnest(s.kept) as each) as kept,
        (select coalesce(sum(upper(each) - lower(each)), 0) from unnest(s.kept * s.before) as each) as again,
        (select coalesce(sum(upper(each) - lower(each)), 0)
         from unnest((s.numbers - s.before) * int8multirange(int8range(null, upper(s.before)))) as each
         where not isempty(s.before)) as late) as length
