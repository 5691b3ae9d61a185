-- What somebody should look at.

-- name: failing_endpoints
-- A tenant's webhooks whose last tries failed, those that are not sent to any more first.
select {endpoint_columns} from hw_endpoint e where e.tenant_id = :tenant_id and e.deleted_at is null and e.enabled = 1 and e.failures > 0
order by e.opened_at is null, e.opened_at, e.id limit :limit;
