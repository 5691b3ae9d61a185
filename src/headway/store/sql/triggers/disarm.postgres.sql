-- Nobody is to be told of anything any more. Not worth that anybody waits.
lock table hw_event in share row exclusive mode nowait;
alter table hw_event disable trigger hw_event_outbox;
