-- name: create_pieces
-- What is packed already is not packed again.
create {kind} {table} (
    topic text not null, partition int not null, first_offset bigint not null, last_offset bigint not null,
    records int not null, largest_bytes int not null, content bytea not null, _task bigint not null);
alter table {table} alter column content set storage external

-- name: create_left_out
create temporary table batchledger_left_out (topic text, partition int, offsets bigint[]) on commit drop

-- name: leave_out
insert into batchledger_left_out
select _topic, _partition, array_agg(_offset order by _offset)
from (({staged}) except all select _topic, _partition, _offset from {accepted}) left_out
group by _topic, _partition

-- name: find_missing
-- How many rows and how many records are sealed, if they are not the same.
select rows, records
from (select count(*) as rows from {rows}) r, (select coalesce(sum(records), 0) as records from {records}) s
where rows <> records

-- name: count_records
select coalesce((select sum(records) from {records}), 0)
    - coalesce((select sum(cardinality(offsets)) from batchledger_left_out), 0)

-- name: read_pieces
select topic, partition, first_offset, last_offset, content
from {records}
order by topic collate "C", partition, first_offset

-- name: read_largest_pieces
select topic, partition, largest_bytes, content
from {records}
order by largest_bytes desc
