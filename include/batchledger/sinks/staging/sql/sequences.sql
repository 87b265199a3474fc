-- name: count_numbers
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

-- name: find_missing_numbers
-- The gaps that the batch opens, each with the record behind it, or before it if that one came in an earlier batch.
with gap as (
    select {keys}, run, lower(each) as first_number, upper(each) as next_number
    from batchledger_series, unnest(missing) as each
), edge as (
    select *, next_number as number from gap
    union all
    select *, first_number - 1 from gap
), beside as (
    select distinct on ({keys}, run, e.first_number)
        n._topic, n._partition, n._offset, e.first_number, e.next_number - 1 as last_number, number
    from edge e
    join batchledger_number n using ({keys}, run, number)
    order by {keys}, run, e.first_number, number desc, n._topic collate "C", n._partition, n._offset
)
select * from beside
order by _topic collate "C", _partition, _offset, first_number
limit %(limit)s

-- name: find_repeated_numbers
with numbered as (
    select n._topic, n._partition, n._offset, s.before, number,
        row_number() over (
            partition by {keys}, run, number order by n._topic collate "C", n._partition, n._offset) as copy
    from batchledger_number n
    join batchledger_series s using ({keys}, run)
    where n.is_kept
)
select _topic, _partition, _offset, number
from numbered
where copy > 1 or number <@ before
order by _topic collate "C", _partition, _offset
limit %(limit)s

-- name: remember_numbers
insert into batchledger.sequence (pipeline, key_hash, run, seen, batch_id)
select %(pipeline)s, key_hash, last_run, before + numbers, %(batch_id)s
from batchledger_series
where is_last
on conflict (pipeline, key_hash) do update
set run = excluded.run, seen = excluded.seen, batch_id = excluded.batch_id

-- name: gather_series
-- One row for each key and each of its numberings in the batch; run 0 continues the numbering of earlier batches.
-- A number that was set aside has arrived: it fills gaps, and repeats nothing.
create temporary table batchledger_series on commit drop as
with here as (
    select {keys}, run, count(*) filter (where is_kept) as records,
        coalesce(range_agg(int8range(number, number + 1)) filter (where is_kept), '{{}}') as kept,
        coalesce(range_agg(int8range(number, number + 1)) filter (where not is_kept), '{{}}') as aside
    from {numbers}
    group by {keys}, run
), named as (
    select *, kept + aside as numbers, {key_hash} as key_hash
    from here
), known as (
    select n.*, s.run as known_run, case when n.run = 0 then coalesce(s.seen, '{{}}') else '{{}}' end as before,
        n.run > 0 and (s.run is not null or n.run > min(n.run) over key) as is_restart,
        n.run = max(n.run) over key as is_last
    from named n
    left join batchledger.sequence s on s.pipeline = %(pipeline)s and s.key_hash = n.key_hash
    window key as (partition by n.key_hash)
)
select k.*, coalesce(k.known_run, 1) + count(*) filter (where k.is_restart) over (partition by k.key_hash) as last_run,
    (int8multirange(range_merge(k.before + k.numbers)) - (k.before + k.numbers))
        - (int8multirange(range_merge(k.before)) - k.before) as missing
from known k

-- name: select_numbers
-- Every row with its number, and how often the numbering of its key has begun anew in the batch before it.
select *, {run} as run
from (
    select {aliased}, {number}::bigint as number, _topic, _partition, _offset, is_kept
    from {rows}
    where {is_numbered}) numbered
