select percentile_cont(%(levels)s::float8[]) within group (order by {column}::float8)
from {rows}
where {column}::float8 not in ('NaN', 'Infinity', '-Infinity')
