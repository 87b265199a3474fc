create temporary view {view} as
select {columns}
from {kept}
where {is_row}
