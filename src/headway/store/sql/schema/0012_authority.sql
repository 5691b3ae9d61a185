-- The authors that answer for work placed later, and the admin kinds that a tenant is open for.

-- The author of the definition, or of its last change: its authority is checked whenever work of it is placed.
alter table hw_schedule add column defined_by text;
alter table hw_template add column defined_by text;
update hw_schedule set defined_by = coalesce((select e.actor from hw_event e where e.thing = 'schedule' and e.thing_id = hw_schedule.id
  and e.kind in ('schedule.created', 'schedule.changed') order by e.version desc limit 1), created_by);
update hw_template set defined_by = coalesce((select e.actor from hw_event e where e.thing = 'template' and e.thing_id = hw_template.id
  and e.kind in ('template.created', 'template.changed') order by e.version desc limit 1), created_by);

-- {name: id} of the templates that a schedule names, as they were when it was saved.
alter table hw_schedule add column templates text not null default '{}';

-- A JSON list of the admin kinds that a tenant's own admins may give. Null: the tenant `default` until there is a second one.
alter table hw_tenant add column allow text;
update hw_tenant set allow = '[]' where id > 0 and (name <> 'default' or (select count(*) from hw_tenant where id > 0) > 1);
