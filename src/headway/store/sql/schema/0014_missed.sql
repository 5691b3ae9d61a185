-- Missed ticks have an event. Those up to this number were decided before, and have none.
insert into hw_setting (name, value) select 'ticks_without_event', cast(max(id) as text) from hw_tick having max(id) is not null;
