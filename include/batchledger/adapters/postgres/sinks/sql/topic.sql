-- name: select_produced_before
-- The records that other batches have produced of these ranges, as far as the ledger knows: neither listed as
-- duplicates, nor set aside, nor remembered with another key.
select s.*
from {staging} s
join unnest(%(batches)s::bigint[], %(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
    as piece (batch_id, topic, partition, start, until)
    on piece.topic = s._topic and piece.partition = s._partition and s._offset >= piece.start and s._offset < piece.until
join batchledger.batch b on b.batch_id = piece.batch_id
where not exists (
        select from batchledger.duplicate d
        where d.batch_id = piece.batch_id and d.topic = s._topic and d.partition = s._partition
            and d."offset" = s._offset)
    and not exists (
        select from batchledger.quarantine q
        where q.pipeline = b.pipeline and q.topic = s._topic and q.partition = s._partition and q."offset" = s._offset)
    and not exists (
        select from batchledger.message_key m
        where m.pipeline = b.pipeline and m.topic = s._topic and m.partition = s._partition and m."offset" = s._offset
            and m.key_hash <> {key_hash})

-- name: count_produced
select count(*) filter (where is_held), count(*) filter (where not is_held)
from (
    select exists (
        select from unnest(%(topics)s::text[], %(partitions)s::int[], %(starts)s::bigint[], %(untils)s::bigint[])
            as p (topic, partition, start, until)
        where p.topic = r._topic and p.partition = r._partition and r._offset >= p.start and r._offset < p.until
    ) as is_held
    from {rows} r
) judged

-- name: find_largest
-- The record that takes the most room.
select *
from ({records}) records (key, value, topic, partition, "offset", timestamp_ms)
order by coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) desc
limit 1

-- name: read_output
-- Rows are sorted before they become text, so that the database makes the next part while the last one is sent.
select {key}, case when {deletes} then null else convert_to({value}, 'UTF8') end,
    _topic, _partition, _offset, (extract(epoch from _timestamp) * 1000)::bigint
from (select * from {rows} order by _topic collate "C", _partition, _offset) sorted
