-- name: withhold_payloads
-- Nothing says whether an erased key is in what does not decode, or in a row without its columns. What lies in quarantine already was looked through by the
-- erasure, and stays as it is there.
update {quarantine} q
set key = null, value = null, headers = 'null'
where exists (
        select from batchledger.erased_key e
        where e.pipeline = %(pipeline)s and e.topic = q.topic and e.partition = q.partition and e.until > q."offset")
    and not exists (
        select from batchledger.quarantine k
        where k.pipeline = %(pipeline)s and k.topic = q.topic and k.partition = q.partition
            and k."offset" = q."offset" and k.payload_kept)
