-- One row for each key and each of its numberings in the batch; run 0 continues what was seen by earlier batches.
-- A number that was set aside has arrived: it fills gaps, and repeats nothing.
create temporary table batchledger_series on commit drop as
with here as (
    select {keys}, run, count(*) filter (where is_kept) as records,
        coalesce(range_agg(int8range(number, number + 1)) filter (where is_kept), '{{}}') as kept,
        coalesce(range_agg(int8range(number, number + 1)) filter (where not is_kept), '{{}}') as aside
    from {numbers}
    group by {keys}, run
), named as (
    select *, kept + aside as numbers, jsonb_build_array({keys})::text as key,
        sha256(convert_to(jsonb_build_array({names}, {keys})::text, 'UTF8')) as key_hash
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
