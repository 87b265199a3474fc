-- What published batches hold of the ranges of this one. A live batch takes over from replays and from earlier epochs
-- only: an overlap with a live batch of its own epoch stays, and is refused (I2). "offset 0" as in find_published_since.
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
