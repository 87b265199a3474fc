-- What published batches hold of the ranges of this one. An overlap with a live batch of the same epoch is refused when
-- the batch is published, so nobody needs to tell it apart here.
select h.batch_id, h.topic, h.partition, lower(piece), upper(piece)
from batchledger.batch_range mine
join batchledger.batch_range h
    on h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition
    and h.held && mine.offsets and not isempty(h.held) and h.batch_id <> mine.batch_id
cross join lateral unnest(h.held * int8multirange(mine.offsets)) as piece
where mine.batch_id = %(batch_id)s
