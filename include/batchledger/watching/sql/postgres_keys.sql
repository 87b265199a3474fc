-- name: ask_keys
select k.place, count({first}), coalesce(bool_and({agrees}), false)
from unnest({arrays}) with ordinality as k ({names}, place)
    left join {table} c on {equal}
group by k.place
having count({first}) <> 1 or not coalesce(bool_and({agrees}), false)
