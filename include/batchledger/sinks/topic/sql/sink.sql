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
