-- name: count_words
copy (
    select coalesce({topic}, -1)::bigint, coalesce(r.partition, -1)::bigint, coalesce(r.record::bigint >> 6, -1),
        coalesce(bit_or(1::bigint << (r.record & 63)::int), 0), count(*)
    from {rows} r
    group by 1, 2, 3
) to stdout (format binary)

-- name: count_repeated_words
copy (
    select coalesce({topic}, -1)::bigint, r.partition::bigint, r.record::bigint >> 6,
        bit_or(1::bigint << (r.record & 63)::int), count(*)
    from (
        select r.topic, r.partition, r.record
        from {rows} r
        where r.partition is not null and r.record is not null
        group by 1, 2, 3
        having count(*) > 1
    ) r
    group by 1, 2, 3
) to stdout (format binary)

-- name: rows_of_spans
(
    select t.topic, t.partition, t.record, t.place
    from unnest({topics}::text[], {partitions}::bigint[], {starts}::bigint[], {untils}::bigint[])
            as s (topic, partition, start, until)
        join {all} t on t.partition = s.partition and t.record >= s.start and t.record < s.until {same_topic}
)

-- name: fingerprint_ranges
select coalesce(bit_xor(hashtextextended(t.content, t.record)), 0)
from unnest({topics}::text[], {partitions}::bigint[], {starts}::bigint[], {untils}::bigint[])
        with ordinality as s (topic, partition, start, until, number)
    left join {all} t on t.partition = s.partition and t.record >= s.start and t.record < s.until {same_topic}
group by s.number
order by s.number

-- name: rows_of_few_spans
(select t.topic, t.partition, t.record, t.place from {all} t where {conditions})

-- name: span_as_condition
(t.partition = {partition} and t.record >= {start} and t.record < {until} {same_topic})

-- name: locate_rows
select coalesce(r.topic, {topic}), r.partition, r.record, count(*), (array_agg(r.place order by r.place))[:{places}]
from {rows} r
group by 1, 2, 3
order by 1, 2, 3
