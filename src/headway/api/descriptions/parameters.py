"""Query and path parameters that mean the same in every operation that has them."""

from __future__ import annotations

PARAMETERS = {
    "after": "Only events after this version",
    "batch_id": "The number of the batch",
    "created_by": "The name of the actor that created the job",
    "delivery_id": "The number of the delivery",
    "execution_id": "The number of the execution",
    "failure_kind": "A failure kind",
    "group_id": "The number of the group",
    "job_id": "The number of the job",
    "key": "The uniqueness key of the job",
    "listed": "How many jobs each list has at most",
    "name": "The name",
    "reservation_id": "The number of the reservation",
    "run_id": "The number of the run, which is that of its job",
    "schedule_id": "The number of the schedule",
    "status": "A status; several of them match any",
    "target": "The name of the target",
    "task": "The name of the task",
    "template_id": "The number of the template",
    "thing": "A kind of thing, like job or schedule",
    "thing_id": "The number of the thing",
    "token_id": "The number of the token",
    "type": "`story` or `research`",
    "webhook_id": "The number of the webhook",
}
