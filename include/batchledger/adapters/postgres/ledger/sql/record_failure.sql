-- An attempt that could not stage is over; a later step may be repeated, and keeps its newest error.
update batchledger.attempt
set error = %(error)s, failed_step = %(step)s,
    ended_at = case when %(step)s = 'stage' then clock_timestamp() end,
    outcome = case when %(step)s = 'stage' then 'failed' end
where batch_id = %(batch_id)s and number = %(number)s and outcome is null
