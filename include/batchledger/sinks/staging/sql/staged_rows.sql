-- name: create_rows_view
create temporary view {view} as
select {columns}
from {kept}
where {is_row}

-- name: count_rows_to_check
select count(*), count(*) filter (where {is_row})
from {kept}

-- name: sum_staging
-- See model/offset_sums.py. Timestamps are Kafka's milliseconds.
select _topic, _partition, count(*), min(_offset), max(_offset), sum(_offset),
    sum((_offset & 2147483647) * (_offset & 2147483647)),
    array[
        floor(extract(epoch from min(_timestamp)) * 1000)::bigint,
        floor(extract(epoch from max(_timestamp)) * 1000)::bigint, count(*) - count(_timestamp)]
from {staging}
group by _topic, _partition

-- name: summarise_staging
-- One pass: every row meets its range; a row that meets none is counted as outside. Ordinality keeps the batch's order.
-- Distinct offsets are bits of words of 64, which several workers can gather; count(distinct) would sort in one.
-- Timestamps are Kafka's milliseconds.
with words as (
    select p.ordinality, count(*) as row_count, bit_or(1::bigint << (s._offset & 63)::int) as offsets,
        min(s._timestamp) as first, max(s._timestamp) as last, count(*) - count(s._timestamp) as untimed
    from {staging} s
    left join unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        with ordinality as p (topic, partition, start, until, ordinality)
        on p.topic = s._topic and p.partition = s._partition and s._offset >= p.start and s._offset < p.until
    group by p.ordinality, s._offset >> 6
), per_range as (
    select ordinality, sum(row_count)::bigint as row_count, sum(bit_count(offsets::bit(64)))::bigint as distinct_offsets,
        floor(extract(epoch from min(first)) * 1000)::bigint as first_ms,
        floor(extract(epoch from max(last)) * 1000)::bigint as last_ms, sum(untimed)::bigint as untimed
    from words
    group by ordinality
)
select coalesce(r.row_count, 0), coalesce(r.distinct_offsets, 0),
    case when p.ordinality = 1
        then coalesce((select row_count from per_range where ordinality is null), 0) else 0 end,
    r.first_ms, r.last_ms, coalesce(r.untimed, 0)
from unnest(%(topics)s::text[]) with ordinality as p (topic, ordinality)
left join per_range r using (ordinality)
order by p.ordinality

-- name: count_repeated
-- Two numbers per range, in the batch's order: duplicates, and duplicates that were listed before.
select count(r._offset), count(r._offset) filter (where r.is_settled)
from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    with ordinality as p (topic, partition, start, until, ordinality)
left join {repeated} r
    on r._topic = p.topic and r._partition = p.partition and r._offset >= p.start and r._offset < p.until
group by p.ordinality
order by p.ordinality
