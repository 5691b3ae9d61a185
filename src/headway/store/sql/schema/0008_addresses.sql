-- Deliveries to addresses that jobs brought, by tenant and host: each has its turn.
create index hw_delivery_address on hw_delivery (endpoint_id, tenant_id, {address(url)}, due_at, id) where status = 'PENDING' and endpoint_id = 0;
