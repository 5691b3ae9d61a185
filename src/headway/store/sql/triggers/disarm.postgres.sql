-- Disables the outbox trigger when there are no subscribers. The lock is not waited for.
lock table hw_event in share row exclusive mode nowait;
alter table hw_event disable trigger hw_event_outbox;
