-- What the exclusion constraint batch_range_disjoint would refuse to publish once more.
select h.batch_id, h.topic, h.partition, lower(h.offsets * mine.offsets), upper(h.offsets * mine.offsets)
from batchledger.batch_range mine
join batchledger.batch_range h
    on h.pipeline = mine.pipeline and h.topic = mine.topic and h.partition = mine.partition and h.epoch = mine.epoch
    and h.offsets && mine.offsets and h.published_live and h.batch_id <> mine.batch_id
where mine.batch_id = %(batch_id)s
order by h.topic, h.partition, h.offsets
