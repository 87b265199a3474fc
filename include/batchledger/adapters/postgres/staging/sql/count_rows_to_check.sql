select count(*), count(*) filter (where {is_row})
from {kept}
