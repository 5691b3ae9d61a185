update hw_schedule set templates = (select json_group_object(t.name, t.id) from hw_template t
  where t.tenant_id = hw_schedule.tenant_id and t.archived_at is null and t.name in (
    select json_extract(hw_schedule.definition, '$.template')
    union all select json_extract(s.value, '$.template') from json_each(hw_schedule.definition, '$.steps') s))
where deleted_at is null;
