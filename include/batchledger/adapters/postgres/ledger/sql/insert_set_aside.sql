-- A record that was set aside already, by a twin of this step or before a crash, stays as it is.
insert into {quarantine}
select *
from batchledger_aside a
where not exists (
    select from {quarantine} q
    where q.topic = a.topic and q.partition = a.partition and q."offset" = a."offset")
