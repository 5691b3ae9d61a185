-- When a person last marked the missed ticks of a schedule as seen. Those of the time before this column count as seen.
alter table hw_schedule add column missed_seen_at bigint;
update hw_schedule set missed_seen_at = (select max(t.decided_at) from hw_tick t where t.schedule_id = hw_schedule.id);
create index hw_tick_missed on hw_tick (schedule_id, decided_at) where outcome in ('MISSED', 'COALESCED');
