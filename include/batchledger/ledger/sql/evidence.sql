-- name: summarise_evidence
-- Overlapping evidence of repeated task attempts counts once: range_agg is a union. Each table is read once, not once a
-- range.
select r.topic, r.partition, lower(r.offsets), upper(r.offsets),
    coalesce((
        select sum(upper(seen) - lower(seen))::bigint
        from unnest(v.offsets * int8multirange(r.offsets)) as seen), 0),
    coalesce(q.records, 0),
    coalesce((
        select sum(upper(skipped) - lower(skipped))::bigint
        from unnest(v.tombstones * int8multirange(r.offsets)) as skipped), 0),
    q.first_ms, q.last_ms, coalesce(q.untimed, 0)
from batchledger.batch_range r
left join (
    select topic, partition, range_agg(offsets) as offsets, range_agg(tombstones) as tombstones
    from {visible}
    where reader is null
    group by topic, partition) v
    on v.topic = r.topic and v.partition = r.partition
left join (
    select mine.topic, mine.partition, mine.offsets, count(distinct q."offset") as records,
        min(q.moment_ms) as first_ms, max(q.moment_ms) as last_ms,
        count(distinct q."offset") filter (where q.moment_ms is null) as untimed
    from (
        -- A number that is no moment in the years 1970 to 9999 lies in no window of time.
        select topic, partition, "offset",
            case when timestamp_ms between 0 and 253402300799999
                then timestamp_ms end as moment_ms
        from {quarantine}) q
    join batchledger.batch_range mine
        on mine.batch_id = %(batch_id)s and mine.topic = q.topic and mine.partition = q.partition
        and mine.offsets @> q."offset"
    group by mine.topic, mine.partition, mine.offsets) q
    on q.topic = r.topic and q.partition = r.partition and q.offsets = r.offsets
where r.batch_id = %(batch_id)s
order by r.topic, r.partition, r.offsets

-- name: summarise_staged_quarantine
-- The kinds of error, how many records have each, and where the first one lies. A record counts once, even if a
-- repeated task attempt has set it aside again.
select distinct on (error)
    error, count(*) over (partition by error), topic, partition, "offset"
from (select distinct error, topic, partition, "offset" from {quarantine}) q
order by error, topic, partition, "offset"

-- name: summarise_unknown_fields
-- What each task has counted; a row without a field has the number of records with any. If a task was repeated, one of its
-- attempts counts.
select distinct on (field, reader) field, records, topic, partition, first_offset
from {visible}
where records is not null
order by field, reader, records desc

-- name: count_seen
-- Overlapping evidence of repeated task attempts counts once: range_agg is a union.
select coalesce(sum(upper(seen) - lower(seen)), 0)::bigint
from (
    select unnest(range_agg(offsets)) as seen
    from {visible}
    where reader is null
    group by topic, partition) as s

-- name: find_holes
select r.topic, r.partition, lower(hole), upper(hole)
from batchledger.batch_range r
left join (select topic, partition, range_agg(offsets) as offsets from {visible} where reader is null group by topic, partition) v
    on v.topic = r.topic and v.partition = r.partition
cross join lateral unnest(int8multirange(r.offsets) - coalesce(v.offsets, int8multirange())) as hole
where r.batch_id = %(batch_id)s
order by r.topic, r.partition, hole

-- name: read_quarantine
select q.topic, q.partition, q."offset",
    coalesce(q.timestamp_ms, floor(extract(epoch from q."timestamp") * 1000)::bigint), q.key, q.value, q.headers::text,
    q.error
from batchledger.batch_range r
join batchledger.quarantine q
    on q.pipeline = r.pipeline and q.topic = r.topic and q.partition = r.partition and q."offset" >= lower(r.offsets)
    and q."offset" < upper(r.offsets)
where r.batch_id = %(batch_id)s
order by q.topic, q.partition, q."offset"

-- name: insert_set_aside
-- If a twin of this step, or this one before a crash, has set a record aside, that stays as it is.
insert into {quarantine}
select *
from batchledger_aside a
where not exists (
    select from {quarantine} q
    where q.topic = a.topic and q.partition = a.partition and q."offset" = a."offset")
