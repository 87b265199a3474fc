create temporary view batchledger_output as
select {key} as key,
    case when {deletes} then null else convert_to({value}, 'UTF8') end as value,
    _topic, _partition, _offset, _timestamp
from {rows}
