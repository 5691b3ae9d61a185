-- The outbox itself is in triggers/arm.sqlite.sql.
create trigger hw_delivery_frozen before update of body, message_id, event_id, event, endpoint_id, job_id, url on hw_delivery
when old.body is not null
begin
  select raise(abort, 'a delivery is sent as it was first sent: its body never changes');
end;
