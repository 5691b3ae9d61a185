"""The authority of a client's caller and of the authors of stored definitions.

It is read where work is placed or its data change. The rule itself is in `model.access.authority`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headway.errors import NotFound
from headway.model.access import authority as rule
from headway.model.access.authority import ADMIN_TASKS, KINDS, OWNER, Authority, StepParams
from headway.model.access.permissions import Role
from headway.model.groups.group import Group, NewMember
from headway.model.jobs.job import Actor, JobRecord, NewJob
from headway.model.schedules.definition import WHAT
from headway.store import templates
from headway.store.access import tenants, tokens
from headway.store.db import Tx
from headway.store.groups import advance as groups
from headway.store.groups import origins
from headway.store.schedules import schedules

if TYPE_CHECKING:
    from headway.engine.client.client import Client

_NOBODY = Authority("an unknown token", Role.VIEWER, frozenset())


# --- whose authority ----------------------------------------------------------------------------------------------


def of_caller(client: Client) -> Authority:
    """Returns the authority of the caller; a client without a visitor belongs to the owner of the database."""
    visitor = client.visitor
    if visitor is None:
        return OWNER
    return _made(client, client.tenant_id, visitor.actor.shown, visitor.role, system=visitor.system)


def of_author(client: Client, tenant_id: int, actor: str) -> Authority:
    """Returns the authority of an author as the tenant is open now.

    A token keeps its role after its revocation: that ends its requests, not the schedules it made.
    """
    author = Actor.parse(actor) if actor else None
    if author is None or author.type == "user":
        return OWNER  # a program with the address of the database
    if author.type not in ("token", "schedule"):
        return _NOBODY  # a worker and the system repeat the work of others, and decide no params
    try:
        with client.database.beyond().read() as tx:
            if author.type == "schedule":
                known = schedules.kept(tx, tenant_id, [int(author.id)])
                return of_author(client, tenant_id, known[int(author.id)].author) if known else _NOBODY
            token = tokens.get(tx, int(author.id))
    except NotFound:
        return _NOBODY
    return _made(client, tenant_id, token.name, token.role, system=token.tenant_id is None)


def _made(client: Client, tenant_id: int, who: str, role: Role, *, system: bool) -> Authority:
    if system or not role.may(Role.ADMIN):
        return Authority(who, role, frozenset(KINDS))
    with client.database.beyond().read() as tx:
        tenant = tenants.by_id(tx, tenant_id)
    return Authority(who, role, frozenset(tenant.kinds), tenant.name)


# --- jobs and groups ----------------------------------------------------------------------------------------------


def check_task(client: Client, task: str) -> None:
    if client.visitor is not None and task in ADMIN_TASKS:
        rule.check_task(of_caller(client), task)


def check_policy(client: Client, on_failure: str | None) -> None:
    if client.visitor is not None and on_failure is not None and rule.is_custom(on_failure):
        rule.check_policy(of_caller(client), on_failure)


def check_jobs(client: Client, new: Iterable[NewJob]) -> None:
    """Refuses jobs that the caller may not create; `Templates.job` has checked those of a template."""
    if client.visitor is not None:
        for task in {job.task for job in new if job.template_id is None}:
            check_task(client, task)


def check_group(client: Client, on_failure: str, members: Sequence[NewMember]) -> None:
    """Refuses a group whose data or policy the caller, or the author of a template, may not decide."""
    if not rule.matters({member.job.task for member in members}, on_failure):
        return
    caller = of_caller(client)
    rule.check_policy(caller, on_failure)
    check_jobs(client, [member.job for member in members])
    steps, authors = _steps(client, client.tenant_id, members)
    rule.check_references(caller, steps)
    _check_authors(client, client.tenant_id, steps, authors)


def check_plan(
    client: Client, tenant_id: int, author: Callable[[], Authority], on_failure: str, members: Sequence[NewMember]
) -> None:
    """Refuses an execution whose data or policy the author of its schedule, or of a template, may not decide."""
    tasks = {member.job.task for member in members}
    if not rule.matters(tasks, on_failure):
        return
    by = author()
    rule.check_policy(by, on_failure)
    rule.check_tasks(by, sorted(tasks))
    steps, authors = _steps(client, tenant_id, members)
    _check_authors(client, tenant_id, steps, authors)


def _steps(client: Client, tenant_id: int, members: Sequence[NewMember]) -> tuple[list[StepParams], dict[str, str]]:
    """Returns the steps of a group as their data flow, and the authors of the templates that they are from."""
    known = {}
    with client.database.read() as tx:
        for number in sorted({member.job.template_id for member in members if member.job.template_id is not None}):
            known[number] = templates.find(tx, tenant_id, number)
    steps, authors = [], {}
    for member in members:
        job = member.job
        template = known.get(job.template_id) if job.template_id is not None else None
        opened = () if template is None else template.open_params
        steps.append(StepParams(member.step, member.stage, job.task, job.params, opened))
        if template is not None:
            authors[member.step] = template.author
    return steps, authors


def _check_authors(client: Client, tenant_id: int, steps: Sequence[StepParams], authors: dict[str, str]) -> None:
    """Refuses a step of a template whose author may not decide its params, or those that its result flows into."""
    for step in steps:
        if step.step in authors:
            author = of_author(client, tenant_id, authors[step.step])
            rule.check_task(author, step.task)
            rule.check_influence(author, step.step, steps)


# --- work that exists ---------------------------------------------------------------------------------------------


def check_result(caller: Authority, tx: Tx, job: JobRecord) -> None:
    """Refuses a result that flows into params which the caller may not give."""
    if caller is not OWNER and job.group_id is not None and job.step is not None:
        rule.check_influence(caller, job.step, groups.flowing(tx, job.group_id))


def check_new_params(caller: Authority, tx: Tx, job: JobRecord) -> None:
    """Refuses new params of existing work, and of a step whose result flows into params of an admin kind."""
    rule.check_new_params(caller, [job.task])
    check_result(caller, tx, job)


def check_retries(client: Client, again: Iterable[JobRecord]) -> None:
    """Refuses a retry of an admin kind that neither the caller nor an author may give now."""
    if client.visitor is None:
        return
    caller = of_caller(client)
    for job in again:
        if not caller.may(job.task):
            authors = _authors_of(client, job)
            if not any(author.may(job.task) for author in authors):
                rule.check_task(authors[0], job.task)


def check_policy_again(client: Client, group: Group) -> None:
    """Refuses a retry with a custom failure policy that neither the caller nor an author may give now.

    The authors are the caller who created the first group of the chain, and the author of a schedule that has the same
    policy now.
    """
    if client.visitor is None or not rule.is_custom(group.on_failure) or of_caller(client).may(rule.POLICY):
        return
    with client.database.read() as tx:
        actors = [origins.first_of_group(tx, group).created_by]
        for schedule in schedules.kept(tx, group.tenant_id, [group.schedule_id] if group.schedule_id else []).values():
            if schedule.readable and schedule.parsed.on_failure == group.on_failure:
                actors.insert(0, schedule.author)
    authors = [of_author(client, group.tenant_id, actor) for actor in actors]
    if not any(author.may(rule.POLICY) for author in authors):
        rule.check_policy(authors[0], group.on_failure)


def _authors_of(client: Client, job: JobRecord) -> list[Authority]:
    """Returns the authorities that answer for the params of a job: of the actor who gave them, and of its template.

    Both answer for what they decided only: a schedule or a template that says something else by now does not.
    """
    with client.database.read() as tx:
        origin, actor = origins.of_params(tx, job)
        same = Actor.parse(actor).type != "schedule" or _still_says(tx, origin, int(Actor.parse(actor).id))
        template = None if job.template_id is None else templates.find(tx, job.tenant_id, job.template_id)
    author = of_author(client, job.tenant_id, actor) if same else _NOBODY
    if template is None:
        return [author]
    kept = rule.is_of(template, job.task, job.unfilled or job.params)
    behind = of_author(client, job.tenant_id, template.author) if kept else _NOBODY
    if Actor.parse(actor).type == "schedule" and not behind.may(job.task):
        return [behind]  # a run of the schedule would be refused for the author of its template too
    return [author, behind]


def _still_says(tx: Tx, job: JobRecord, schedule_id: int) -> bool:
    """Returns True if a schedule defines the work that it defined when it placed a job."""
    before = schedules.definition_at(tx, schedule_id, job.created_at)
    known = schedules.kept(tx, job.tenant_id, [schedule_id])
    if before is None or not known:
        return False
    now = json.loads(known[schedule_id].definition)
    return all(before.get(part) == now.get(part) for part in (*WHAT, "params"))


def bound_templates(tx: Tx, tenant_id: int, names: Iterable[str]) -> str:
    """Returns the ids of templates by name as stored JSON; names without a template are left out."""
    found = {}
    for name in sorted(set(names)):
        for row in tx.run("template_by_name", name=name, tenant_id=tenant_id):
            found[name] = int(row[0])
    return json.dumps(found, separators=(",", ":"))
