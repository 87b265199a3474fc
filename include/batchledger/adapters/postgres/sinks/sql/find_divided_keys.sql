-- Records of the batch whose key has a record in another partition: in the batch, in the target, or as a tombstone.
select l._topic, l._partition, l._offset, o._topic, o._partition, o._offset
from batchledger_last l
join batchledger_last o on o._key_hash = l._key_hash
where (o._topic, o._partition) > (l._topic, l._partition)
union all
select l._topic, l._partition, l._offset, t._topic, t._partition, t._offset
from batchledger_last l
join {target} t on {same_key}
where (t._topic, t._partition) <> (l._topic, l._partition)
union all
select l._topic, l._partition, l._offset, d.topic, d.partition, d."offset"
from batchledger_last l
join batchledger.deleted_key d on d.pipeline = l._pipeline and d.key_hash = l._key_hash
where (d.topic, d.partition) <> (l._topic, l._partition)
order by 1, 2, 3
limit %(limit)s
