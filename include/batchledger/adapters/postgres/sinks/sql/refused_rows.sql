-- name: select_last
-- The newest record of each key, whole.
(select * from {rows}
where (_topic, _partition, _offset) in (select _topic, _partition, _offset from batchledger_last)) newest

-- name: number_rows
create temporary table batchledger_tried on commit drop as
select {columns}, row_number() over (order by _topic collate "C", _partition, _offset) - 1 as _place
from {rows}
