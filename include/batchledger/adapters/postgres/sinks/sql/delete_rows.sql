delete from {target} t
using batchledger_last l
where l._is_deleted and {same_key} and {version_of_target} <= {version_of_last}
