-- What the exclusion constraint batch_range_disjoint would refuse to publish once more. "offset 0" as in
-- find_published_since.
select h.batch_id, h.topic, h.partition, lower(h.offsets * mine.offsets), upper(h.offsets * mine.offsets)
from batchledger.batch_range mine
cross join lateral (
    select other.batch_id, other.topic, other.partition, other.offsets
    from batchledger.batch_range other
    where other.pipeline = mine.pipeline and other.topic = mine.topic and other.partition = mine.partition
        and other.epoch = mine.epoch and other.offsets && mine.offsets and other.published_live
        and other.batch_id <> mine.batch_id
    offset 0) h
where mine.batch_id = %(batch_id)s
order by h.topic, h.partition, h.offsets
