-- Somebody is to be told. Waits for the transactions that write events right now, and they for it: once, when the first
-- webhook is made. In return nobody pays for webhooks who has none.
alter table hw_event enable trigger hw_event_outbox;
