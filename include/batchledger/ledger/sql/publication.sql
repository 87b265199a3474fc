-- name: load_rows_to_publish
select coalesce(sum(r.accepted), 0)::bigint, coalesce(sum(r.duplicates), 0)::bigint, b.rows_published_at is not null,
    coalesce(bool_and(r.held = int8multirange(r.offsets)), false)
from batchledger.batch b
left join batchledger.batch_range r using (batch_id)
where b.batch_id = %s
group by b.batch_id

-- name: advance_positions
-- The compare-and-swap of I1 and I3: only a partition that stands at the start of its range moves.
update batchledger.position p
set next_offset = upper(r.offsets), updated_at = clock_timestamp()
from batchledger.batch_range r
where r.batch_id = %(batch_id)s
    and p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition
    and p.next_offset = lower(r.offsets)

-- name: find_moved_positions
select r.topic, r.partition, p.next_offset
from batchledger.batch_range r
left join batchledger.position p
    on p.pipeline = r.pipeline and p.topic = r.topic and p.partition = r.partition
where r.batch_id = %(batch_id)s

-- name: find_replaced
-- Offsets of this batch's ranges that published batches hold. A live batch takes over from replays and from earlier
-- epochs only: an overlap with a live batch of its own epoch stays, and is refused (I2). "offset 0" as in
-- find_published_since.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from batchledger.batch_range mine
join batchledger.batch b on b.batch_id = mine.batch_id
cross join lateral (
    select other.batch_id, other.topic, other.partition, other.held, other.epoch
    from batchledger.batch_range other
    where other.pipeline = mine.pipeline and other.topic = mine.topic and other.partition = mine.partition
        and other.held && mine.offsets and not isempty(other.held) and other.batch_id <> mine.batch_id
    offset 0) h
join batchledger.batch holder on holder.batch_id = h.batch_id
cross join lateral unnest(h.held * int8multirange(mine.offsets)) as piece
where mine.batch_id = %(batch_id)s and (b.lane = 'replay' or holder.lane = 'replay' or h.epoch < mine.epoch)
order by h.topic, h.partition, piece

-- name: release_held
-- The batch no longer holds offsets that another one takes over.
update batchledger.batch_range h
set held = h.held - given.offsets
from (
    select batch_id, topic, partition, range_agg(int8range(start, until)) as offsets
    from unnest(%(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
        as piece (batch_id, topic, partition, start, until)
    group by batch_id, topic, partition) given
where h.batch_id = given.batch_id and h.topic = given.topic and h.partition = given.partition
    and h.held && given.offsets

-- name: record_replacement
-- Removes records that the replaced batches set aside in the ranges that they give up, and keeps their count.
with piece as (
    select *
    from unnest(
        %(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[],
        %(rows)s::bigint[]) as piece (batch_id, topic, partition, start, until, rows)
), quarantined as (
    delete from batchledger.quarantine q
    using piece p
    where q.pipeline = %(pipeline)s and q.topic = p.topic and q.partition = p.partition
        and q."offset" >= p.start and q."offset" < p.until
    returning q.topic, q.partition, q."offset"
), duplicates as (
    delete from batchledger.duplicate d
    using piece p
    where d.batch_id = p.batch_id and d.topic = p.topic and d.partition = p.partition
        and d."offset" >= p.start and d."offset" < p.until
    returning d.topic, d.partition, d."offset"
)
insert into batchledger.replacement
    (batch_id, replaced_batch_id, topic, partition, offsets, rows, quarantined, duplicates)
select %(batch_id)s, p.batch_id, p.topic, p.partition, int8range(p.start, p.until), p.rows,
    (select count(*) from quarantined q
     where q.topic = p.topic and q.partition = p.partition and q."offset" >= p.start and q."offset" < p.until),
    (select count(*) from duplicates d
     where d.topic = p.topic and d.partition = p.partition and d."offset" >= p.start and d."offset" < p.until)
from piece p

-- name: publish_quarantine
-- An erased record is not kept: it counts as dropped. Headers are the text null if the payload was not kept. The moment
-- is made of whole seconds and milliseconds, because a double of both would not keep the milliseconds.
with staged as (
    select distinct on (q.topic, q.partition, q."offset") q.*, exists (
            select from batchledger.erased_offset e
            where e.pipeline = %(pipeline)s and e.topic = q.topic and e.partition = q.partition
                and e."offset" = q."offset") as is_erased
    from {quarantine} q
    order by q.topic, q.partition, q."offset"
), dropped as (
    update batchledger.batch_range r
    set quarantine_dropped = of_range.records
    from (
        select h.topic, h.partition, h.offsets, count(*) as records
        from staged s
        join batchledger.batch_range h
            on h.batch_id = %(batch_id)s and h.topic = s.topic and h.partition = s.partition and h.offsets @> s."offset"
        where s.is_erased
        group by h.topic, h.partition, h.offsets) of_range
    where r.batch_id = %(batch_id)s and r.topic = of_range.topic and r.partition = of_range.partition
        and r.offsets = of_range.offsets
), kept as (
    insert into batchledger.quarantine
        (pipeline, topic, partition, "offset", "timestamp", timestamp_ms, key, value, headers, error, batch_id,
            payload_kept, quarantined_at)
    select %(pipeline)s, topic, partition, "offset",
        case when timestamp_ms between 0 and 253402300799999 then
            timestamptz 'epoch' + timestamp_ms / 1000 * interval '1 second'
                + timestamp_ms %% 1000 * interval '1 millisecond'
        end,
        timestamp_ms, key, value, nullif(headers, 'null')::json, error, %(batch_id)s, headers is distinct from 'null',
        clock_timestamp()
    from staged
    where not is_erased
)
select (select count(*) from staged),
    (select coalesce(sum(quarantined), 0)::bigint from batchledger.batch_range where batch_id = %(batch_id)s)

-- name: revoke_commit
update batchledger.batch b
set state = 'audited'
from batchledger.attempt a
where b.batch_id = %(batch_id)s and b.attempt = %(attempt)s and b.state = 'committing'
    and a.batch_id = b.batch_id and a.number = b.attempt and a.run = %(run)s

-- name: hold_ranges
-- A batch holds the offsets that it publishes. The exclusion constraint refuses offsets that are held already.
update batchledger.batch_range set published_live = %(is_live)s, held = int8multirange(offsets)
where batch_id = %(batch_id)s

-- name: read_ledger_mark
-- The mark of the ledger when the pipeline's table was last looked through, and the mark now. A restored ledger is
-- another table, or lies in another file.
select p.ledger_mark, format(
    '%%s/%%s/%%s/%%s', c.system_identifier, d.oid, 'batchledger.position'::regclass::oid,
    pg_relation_filenode('batchledger.position')
)
from batchledger.pipeline p, pg_control_system() c, pg_database d
where p.name = %s and d.datname = current_database()
