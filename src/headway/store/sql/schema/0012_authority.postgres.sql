update hw_schedule set templates = coalesce((select json_object_agg(t.name, t.id)::text from hw_template t
  where t.tenant_id = hw_schedule.tenant_id and t.archived_at is null and t.name in (
    select hw_schedule.definition::json ->> 'template'
    union all select s.value ->> 'template' from json_array_elements(hw_schedule.definition::json -> 'steps') s)), '{}')
where deleted_at is null;
