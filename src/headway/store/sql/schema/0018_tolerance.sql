-- How late a tick could be decided and still be on time (microseconds), where a setting says otherwise than 60 seconds.
alter table hw_tick add column tolerance bigint;
