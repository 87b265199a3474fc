insert into batchledger_recalled
select distinct {key_hash}, _topic, _partition, _offset, false, _topic, _partition, _offset
from {rows}
where ({key}) is not null
