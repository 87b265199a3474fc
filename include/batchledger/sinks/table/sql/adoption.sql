-- name: list_adopted_rows
select {topic}::text, {partition}::bigint, min({offset})::bigint, max({offset})::bigint
from {table}
where {offset} >= 0 and {partition} >= 0
group by 1, 2
order by 1, 2
