-- Nobody is to be told of anything any more.
drop trigger if exists hw_event_outbox;
