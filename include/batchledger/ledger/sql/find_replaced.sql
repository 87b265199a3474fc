-- What published batches hold of the ranges of this one. A live batch takes over from replays and from earlier epochs
-- only: an overlap with a live batch of its own epoch stays, and is refused (I2).
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from batchledger.batch_range mine
join batchledger.batch b on b.batch_id = mine.batch_id
join batchledger.batch_range h
    on h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition
    and h.held && mine.offsets and not isempty(h.held) and h.batch_id <> mine.batch_id
join batchledger.batch holder on holder.batch_id = h.batch_id
cross join lateral unnest(h.held * int8multirange(mine.offsets)) as piece
where mine.batch_id = %(batch_id)s and (b.lane = 'replay' or holder.lane = 'replay' or h.epoch < mine.epoch)
order by h.topic, h.partition, piece
