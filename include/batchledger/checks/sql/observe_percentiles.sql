with numbered as (
    select {column}::float8 as number, {column}::float8 not in ('NaN', 'Infinity', '-Infinity') as is_number
    from {rows}
)
select percentile_cont(%(levels)s::float8[]) within group (order by number) filter (where is_number),
    count(*) filter (where is_number), count(*)
from numbered
