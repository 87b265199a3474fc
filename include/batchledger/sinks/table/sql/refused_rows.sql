-- name: select_last
-- The newest record of each key, whole.
(select * from {rows}
where (_topic, _partition, _offset) in (select _topic, _partition, _offset from {last})) newest

-- name: number_rows
-- A row of an erased key (tables.ERASED) becomes no row, so the table cannot refuse it.
create temporary table batchledger_tried on commit drop as
select {columns}, _task, row_number() over (order by _topic collate "C", _partition, _offset) - 1 as _place
from {rows}
where _task >= 0
