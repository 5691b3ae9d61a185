-- Drops the outbox trigger when there are no subscribers.
drop trigger if exists hw_event_outbox;
