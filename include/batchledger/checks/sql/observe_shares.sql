-- Up to 100 values by themselves, and all others together.
with counted as (
    select {column}::text as value, count(*) as times, row_number() over (order by count(*) desc, {column}::text) as place
    from {rows}
    group by {column}
)
select case
        when value is null then 'null'
        when place <= 100 then left(encode(sha256(convert_to(value, 'UTF8')), 'hex'), 16)
        else 'others' end as name,
    sum(times)::float8 / sum(sum(times)) over () as share
from counted
group by 1
