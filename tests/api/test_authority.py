"""Authority travels with the data: a lesser role decides no value that becomes code. Over real HTTP, both databases."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from headway.errors import Refused
from headway.model.jobs.job import JobRecord
from headway.store.jobs import changes as jobs
from tests.support.service import Site

STORY = {"task": "story.generate", "params": {"topic": "fog"}}
EVIL = ["sh", "-c", "id"]


def plan(*steps: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "nightly",
        "mode": "sequential",
        "jobs": [{"name": f"s{n}", **step} for n, step in enumerate(steps)],
    }


def shell(argv: object, **more: Any) -> dict[str, Any]:
    return {"task": "command", "params": {"argv": argv}, **more}


def ids(group: httpx.Response) -> list[int]:
    assert group.status_code == 201, group.text
    return [step["job_id"] for step in group.json()["steps"]]


def people(site: Site) -> tuple[httpx.Client, httpx.Client]:
    """An admin and an operator of the tenant `default`."""
    return site.as_(site.token("admin", name="root")), site.as_(site.token("operator", name="op"))


def paused(site: Site, job_id: int, tenant: str = "default") -> None:
    """Ends the job's run as PAUSED, as an operator's interrupt does."""
    from headway.model.jobs.outcome import StoppedByRequest
    from tests.support.life import Life

    with Life(site.app.settings.database) as life:
        claim = life.claim(job_id)
        site.app.client.sibling(site.app.client.actor, tenant).interrupt(job_id)
        life.end(claim, StoppedByRequest())


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


# --- results that become params (clause 5) ------------------------------------------------------------------------


def test_an_operator_resolves_no_result_that_becomes_a_command(site: Site) -> None:
    admin, operator = people(site)
    first, second = ids(admin.post("/api/job-groups", json=plan(STORY, shell({"$result": "s0"}))))
    paused(site, first)
    refused = operator.post(f"/api/jobs/{first}/resolve", json={"result": EVIL})
    assert code(refused) == (403, "admin_only")
    assert admin.get(f"/api/jobs/{second}").json()["params"] == {"argv": {"$result": "s0"}}
    assert admin.post(f"/api/jobs/{first}/resolve", json={"result": ["true"]}).status_code == 200
    assert admin.get(f"/api/jobs/{second}").json()["params"] == {"argv": ["true"]}


def test_an_operator_resolves_a_result_that_no_admin_kind_reads(site: Site) -> None:
    admin, operator = people(site)
    first, *_ = ids(
        admin.post(
            "/api/job-groups",
            json=plan(STORY, {"task": "http", "params": {"url": "http://127.0.0.1", "body": {"$result": "s0"}}}),
        )
    )
    paused(site, first)
    assert operator.post(f"/api/jobs/{first}/resolve", json={"result": 1}).status_code == 200


def test_influence_goes_through_the_steps_between(site: Site) -> None:
    """The operator decides the address, the answer of that address becomes the command."""
    admin, operator = people(site)
    steps = [
        STORY,
        {"task": "http", "params": {"url": "http://127.0.0.1/", "body": {"$result": "s0"}}},
        shell(["sh"], params={"argv": ["sh"], "stdin": {"$result": "s1"}}),
    ]
    first, second, _ = ids(admin.post("/api/job-groups", json=plan(*steps)))
    evil = {"params": {"url": "http://127.0.0.1/evil"}}
    assert code(operator.patch(f"/api/jobs/{second}", json=evil)) == (403, "admin_only")
    assert code(operator.patch(f"/api/jobs/{first}", json={"params": {"topic": "x"}})) == (403, "admin_only")
    paused(site, first)
    assert code(operator.post(f"/api/jobs/{first}/resolve", json={"result": 1})) == (403, "admin_only")
    retried = operator.post(f"/api/jobs/{first}/retry", json={"params": {"topic": "x"}})
    assert code(retried) == (403, "admin_only")
    assert operator.post(f"/api/jobs/{first}/retry").status_code == 201
    assert admin.patch(f"/api/jobs/{second}", json=evil).status_code == 200


def test_an_operator_puts_no_step_before_a_template_that_takes_its_result(site: Site) -> None:
    admin, operator = people(site)
    closed = {"name": "greet", "task": "command", "params": {"argv": {"$result": "s0"}}}
    opened = {
        "name": "print",
        "task": "command",
        "params": {"argv": ["cat"], "stdin": {"$result": "s0"}},
        "open_params": ["stdin"],
    }
    made = [admin.post("/api/job-templates", json=one) for one in (closed, opened)]
    first, second = (one.json()["template_id"] for one in made)
    assert code(operator.post("/api/job-groups", json=plan(STORY, {"template_id": first}))) == (403, "admin_only")
    assert operator.post("/api/job-groups", json=plan(STORY, {"template_id": second})).status_code == 201


# --- a schedule keeps its author (clause 6) -----------------------------------------------------------------------


def minutely(**what: Any) -> dict[str, Any]:
    return {"name": "minutely", "interval": 60, **what}


def test_a_name_that_another_template_takes_over_is_not_run(site: Site) -> None:
    """The attack: the operator's schedule names `report`; later that name belongs to an admin's command."""
    admin, operator = people(site)
    mine = operator.post("/api/job-templates", json={"name": "report", **STORY}).json()
    schedule = operator.post("/api/schedules", json=minutely(template_id=mine["template_id"])).json()
    assert operator.delete(f"/api/job-templates/{mine['template_id']}").status_code == 200
    evil = {"name": "report", "task": "command", "params": {"argv": ["true"]}}
    assert admin.post("/api/job-templates", json=evil).status_code == 201
    run = operator.post(f"/api/schedules/{schedule['schedule_id']}/run")
    assert (run.status_code, run.json()["code"]) == (422, "template_archived")


def test_names_are_bound_to_ids_when_a_schedule_is_saved(site: Site) -> None:
    client, (admin, operator) = site.app.client, people(site)
    first = client.templates.create("report", "story.generate", params={"topic": "fog"})
    made = client.schedules.create("nightly", {"cron": "@daily", "template": "report"})
    client.templates.edit("report", name="old report")
    client.templates.create("report", "command", params={"argv": ["true"]})
    execution = operator.post(f"/api/schedules/{made.id}/run")
    assert execution.status_code == 201, execution.text
    assert [step["task"] for step in execution.json()["steps"]] == ["story.generate"]
    assert admin.get(f"/api/schedules/{made.id}").json()["template_id"] == first.id


def test_a_template_that_becomes_a_command_is_not_run_by_an_operators_schedule(site: Site) -> None:
    """The id stays, the task changes: whenever work is placed, the author of the schedule answers for it."""
    admin, operator = people(site)
    template = operator.post("/api/job-templates", json={"name": "report", **STORY}).json()["template_id"]
    what = minutely(template_id=template, enabled=False)
    schedule = f"/api/schedules/{operator.post('/api/schedules', json=what).json()['schedule_id']}"
    assert operator.post(f"{schedule}/run").status_code == 201
    changes = {"task": "command", "params": {"argv": ["true"]}}
    assert admin.patch(f"/api/job-templates/{template}", json=changes).status_code == 200
    evil = {"params": {"argv": EVIL}}
    for path, body in (("run", {"force": True}), ("run", {"force": True, **evil}), ("enable", {})):
        assert code(operator.post(f"{schedule}/{path}", json=body)) == (403, "admin_only"), path
    for path in ("run", "enable"):  # nor for the admin: the definition is still the operator's
        assert admin.post(f"{schedule}/{path}", json={"force": True} if path == "run" else {}).status_code == 403
    assert admin.patch(schedule, json={"note": "mine now"}).status_code == 200
    assert admin.post(f"{schedule}/run", json={"force": True}).status_code == 201


def test_a_tick_of_an_author_without_the_right_is_skipped_with_the_reason(site: Site) -> None:
    from headway.engine.scheduler.scheduler import Scheduler

    admin, operator = people(site)
    template = operator.post("/api/job-templates", json={"name": "report", **STORY}).json()["template_id"]
    what = {"name": "soon", "interval": 1, "template_id": template}
    schedule = operator.post("/api/schedules", json=what).json()["schedule_id"]
    assert (
        admin.patch(
            f"/api/job-templates/{template}", json={"task": "command", "params": {"argv": ["true"]}}
        ).status_code
        == 200
    )
    scheduler = Scheduler(site.app.client)
    while not (ticks := admin.get(f"/api/schedules/{schedule}/ticks").json()["items"]):
        scheduler.tick()
    assert "FIRED" not in {tick["outcome"] for tick in ticks}  # on a slow machine several are decided together
    assert any("only an admin" in (tick["reason"] or "") for tick in ticks)
    assert admin.get("/api/jobs?task=command").json()["items"] == []


def test_an_operators_template_does_not_feed_an_admins_command(site: Site) -> None:
    """An edit of the template would otherwise decide the params of the admin's step."""
    admin, operator = people(site)
    template = operator.post("/api/job-templates", json={"name": "topic", **STORY}).json()["template_id"]
    steps = [{"name": "one", "template_id": template}, {"name": "two", **shell({"$result": "one"})}]
    assert code(admin.post("/api/schedules", json=minutely(steps=steps))) == (403, "admin_only")
    assert admin.patch(f"/api/job-templates/{template}", json={"priority": 3}).status_code == 200
    schedule = admin.post("/api/schedules", json=minutely(steps=steps)).json()["schedule_id"]
    assert operator.patch(f"/api/job-templates/{template}", json={"params": {"topic": "evil"}}).status_code == 200
    assert code(admin.post(f"/api/schedules/{schedule}/run")) == (403, "admin_only")
    backfill = {"since": "2020-01-01T00:00:00Z", "until": "2020-01-01T00:10:00Z"}
    assert admin.post(f"/api/schedules/{schedule}/backfill", json=backfill).status_code in (403, 422)


# --- a tenant's admin is not the machine's (clause 7) --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["command", "powershell", "sql"])
def test_a_tenants_admin_gives_no_admin_kind_until_the_system_opens_it(site: Site, kind: str) -> None:
    params = {"command": {"argv": ["true"]}, "powershell": {"script": "1"}, "sql": {"connection": "a", "script": "x"}}
    body = {"task": kind, "params": params[kind]}
    site.app.client.tenants.create("shop")
    root = site.as_(site.token("admin", tenant=None, name="root"), **{"Headway-Tenant": "shop"})
    admin, default = site.as_(site.token("admin", tenant="shop")), site.as_(site.token("admin", name="d"))
    operator = site.as_(site.token("operator", tenant="shop", name="op"))
    for path, more in (
        ("/api/jobs", body),
        ("/api/job-templates", {"name": "x", **body}),
        ("/api/schedules", minutely(steps=[body])),
        ("/api/job-groups", plan(STORY, body)),
        (f"/api/direct/{kind}", {"params": params[kind]}),
    ):
        assert code(admin.post(path, json=more)) == (403, "kind_closed"), path
        assert default.post(path, json=more).status_code == 403, path
    template = root.post("/api/job-templates", json={"name": "x", **body}).json()["template_id"]
    assert operator.post("/api/jobs", json={"template_id": template}).status_code == 201
    assert admin.post("/api/jobs", json={"template_id": template}).status_code == 201
    refused = admin.post("/api/jobs", json={"template_id": template, "params": params[kind]})
    assert code(refused) == (403, "kind_closed")
    assert "headway tenants set shop --allow" in refused.json()["detail"]
    opened = root.patch("/api/tenants/shop", json={"allow": [kind]})
    assert (opened.status_code, opened.json()["allow"]) == (200, [kind])
    made = admin.post("/api/schedules", json=minutely(steps=[body]))
    assert made.status_code == 201
    job = admin.post("/api/jobs", json={**body, "retry_policy": {"max_attempts": 0}}).json()["job_id"]
    root.patch("/api/tenants/shop", json={"allow": []})
    run = f"/api/schedules/{made.json()['schedule_id']}/run"
    assert code(admin.post(run)) == code(operator.post(run)) == (403, "kind_closed")
    paused(site, job, "shop")
    assert code(operator.post(f"/api/jobs/{job}/retry")) == (403, "kind_closed")
    assert root.post(f"/api/jobs/{job}/retry").status_code == 201


def test_a_dotted_policy_is_an_admin_kind(site: Site) -> None:
    site.app.client.tenants.create("shop")
    admin = site.as_(site.token("admin", tenant="shop"))
    body = {**plan(STORY), "on_failure": "os.path.join"}
    assert code(admin.post("/api/job-groups", json=body)) == (403, "kind_closed")
    assert code(admin.post("/api/schedules", json=minutely(steps=[STORY], on_failure="os.path.join"))) == (
        403,
        "kind_closed",
    )


def test_the_tenant_default_is_open_until_there_is_a_second(site: Site) -> None:
    admin = site.as_(site.token("admin"))
    assert admin.post("/api/jobs", json=shell(["true"])).status_code == 201
    root = site.as_(site.token("admin", tenant=None, name="root"))
    kept = {"name": "shop", "default_allow": ["command"]}
    assert root.post("/api/tenants", json=kept).json()["allow"] == []
    assert root.get("/api/tenants/default").json()["allow"] == ["command"]
    assert admin.post("/api/jobs", json=shell(["true"])).status_code == 201
    assert code(admin.post("/api/jobs", json={"task": "sql", "params": {}})) == (403, "kind_closed")
    root.post("/api/tenants", json={"name": "press"})
    assert root.get("/api/tenants/default").json()["allow"] == ["command"]


# --- a retry is authorised by who decided the data (clauses 6 and 7) ----------------------------------------------


POLICY = "headway.model.groups.group.SkipRest"


def opened(site: Site, *kinds: str) -> tuple[httpx.Client, httpx.Client, httpx.Client]:
    """An admin of the system, and an admin and an operator of a tenant that is open for some kinds."""
    site.app.client.tenants.create("shop")
    root = site.as_(site.token("admin", tenant=None, name="root"), **{"Headway-Tenant": "shop"})
    admin, operator = (site.as_(site.token(role, tenant="shop", name=role)) for role in ("admin", "operator"))
    allow(root, *kinds)
    return root, admin, operator


def allow(root: httpx.Client, *kinds: str) -> None:
    assert root.patch("/api/tenants/shop", json={"allow": list(kinds)}).status_code == 200


def cancelled(admin: httpx.Client, answer: httpx.Response) -> str:
    """Cancels a group, so that it can be retried; returns its path."""
    assert answer.status_code == 201, answer.text
    group = answer.json()
    path = (
        f"/api/schedule-executions/{group['execution_id']}"
        if "execution_id" in group
        else f"/api/job-groups/{group['group_id']}"
    )
    assert admin.post(f"{path}/cancel").status_code == 200
    return path


def test_a_closed_tenants_policy_does_not_run_again(site: Site) -> None:
    """The attack: while the tenant was open its admin placed a group with a policy of their own, and retries it now."""
    root, admin, operator = opened(site, "policy")
    body = {**plan(STORY), "on_failure": POLICY}
    group = cancelled(admin, admin.post("/api/job-groups", json=body))
    schedule = admin.post("/api/schedules", json=minutely(steps=[STORY], on_failure=POLICY, enabled=False)).json()
    own = f"/api/schedules/{schedule['schedule_id']}"
    execution = cancelled(admin, operator.post(f"{own}/run"))
    again = cancelled(admin, operator.post(f"{group}/retry"))
    allow(root)
    for retried in (group, again, execution):
        for caller in (admin, operator):
            assert code(caller.post(f"{retried}/retry")) == (403, "kind_closed"), retried
    for path, more in (
        ("run", {}),
        ("enable", {}),
        ("backfill", {"since": schedule["created_at"], "until": schedule["created_at"]}),
    ):
        assert code(admin.post(f"{own}/{path}", json=more)) == (403, "kind_closed"), path
    assert code(admin.patch(own, json={"enabled": True})) == (403, "kind_closed")
    assert code(admin.post("/api/job-groups", json=body)) == (403, "kind_closed")
    assert root.post(f"{execution}/retry").status_code == 201
    assert operator.post("/api/job-groups", json=plan(STORY)).status_code == 201


def test_a_tick_of_a_closed_tenants_policy_is_skipped(site: Site) -> None:
    from headway.engine.scheduler.scheduler import Scheduler

    root, admin, _ = opened(site, "policy")
    what = {"name": "soon", "interval": 1, "steps": [STORY], "on_failure": POLICY}
    schedule = admin.post("/api/schedules", json=what).json()["schedule_id"]
    allow(root)
    scheduler = Scheduler(site.app.client)
    while not (ticks := admin.get(f"/api/schedules/{schedule}/ticks").json()["items"]):
        scheduler.tick()
    while not any("not open for policy" in (tick["reason"] or "") for tick in ticks):
        scheduler.tick()
        ticks = admin.get(f"/api/schedules/{schedule}/ticks").json()["items"]


def test_an_operator_retries_a_policy_of_an_author_who_may_give_it(site: Site) -> None:
    _, admin, operator = opened(site, "policy")
    group = cancelled(admin, admin.post("/api/job-groups", json={**plan(STORY), "on_failure": POLICY}))
    again = cancelled(admin, operator.post(f"{group}/retry"))
    assert operator.post(f"{again}/retry").status_code == 201, "the author is still the admin"


def test_a_retry_of_a_group_launders_no_author(site: Site) -> None:
    """The params of a retry belong to their first author, also when an operator or the system's admin retried them."""
    root, admin, operator = opened(site, "command")
    group = cancelled(admin, admin.post("/api/job-groups", json=plan(shell(EVIL))))
    second = cancelled(admin, operator.post(f"{group}/retry"))
    third = cancelled(admin, operator.post(f"{second}/retry"))
    allow(root)
    fourth = cancelled(admin, root.post(f"{third}/retry"))
    for caller in (admin, operator):
        assert code(caller.post(f"{fourth}/retry")) == (403, "kind_closed")
    allow(root, "command")
    assert operator.post(f"{fourth}/retry").status_code == 201


def held(site: Site, admin: httpx.Client, argv: list[str]) -> int:
    """A job of the system's admin that is held after its first run."""
    job = admin.post("/api/jobs", json=shell(argv)).json()["job_id"]
    paused(site, job, "shop")
    return int(job)


def test_params_belong_to_the_caller_who_gave_them_last(site: Site) -> None:
    """An admin of the tenant, while it was open, put a command of their own into a job of the system's admin."""
    root, admin, operator = opened(site, "command")
    first = held(site, root, ["true"])
    second = admin.post(f"/api/jobs/{first}/retry", json={"params": {"argv": EVIL}}).json()["job_id"]
    paused(site, second, "shop")
    waiting = root.post("/api/jobs", json=shell(["true"])).json()["job_id"]
    assert admin.patch(f"/api/jobs/{waiting}", json={"params": {"argv": EVIL}}).status_code == 200
    paused(site, waiting, "shop")
    untouched = held(site, root, ["true"])
    allow(root)
    for job in (second, waiting):
        assert code(operator.post(f"/api/jobs/{job}/retry")) == (403, "kind_closed")
    assert operator.post(f"/api/jobs/{untouched}/retry").status_code == 201


def test_a_retry_checks_the_job_that_it_copies(site: Site) -> None:
    """The attack: in a group a retry copies the last job of the step, which another author gave its params."""
    root, admin, operator = opened(site, "command")
    harmless = shell(["true"], retry_policy={"max_attempts": 0})
    (first,) = ids(root.post("/api/job-groups", json=plan(harmless)))
    paused(site, first, "shop")
    second = admin.post(f"/api/jobs/{first}/retry", json={"params": {"argv": EVIL}}).json()["job_id"]
    paused(site, second, "shop")
    assert admin.post(f"/api/jobs/{second}/release").status_code == 200
    allow(root)
    for job in (first, second):
        assert code(operator.post(f"/api/jobs/{job}/retry")) == (403, "kind_closed")
    allow(root, "command")
    third = operator.post(f"/api/jobs/{first}/retry")
    assert (third.status_code, third.json()["params"]) == (201, {"argv": EVIL})


def test_a_job_that_changes_after_the_check_is_checked_again(site: Site) -> None:
    """The attack: the params are edited between the check and the transaction that places the job."""
    from headway.engine.client.placed_again import placed_again, still_checked
    from headway.model.access.permissions import Role, Visitor

    root, admin, _ = opened(site, "command")
    job = root.post("/api/jobs", json=shell(["true"], hold=True)).json()["job_id"]
    actor = site.app.client.actor
    number = site.app.client.sibling(actor, "shop").tenant_id
    client = site.app.client.sibling(actor, "shop", Visitor(actor, "shop", number, Role.OPERATOR, system=False))
    tried = 0

    def place(checked: JobRecord | None) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            assert admin.patch(f"/api/jobs/{job}", json={"params": {"argv": EVIL}}).status_code == 200
            allow(root)
        still_checked(checked, client.get(job))

    with pytest.raises(Refused, match="not open for command"):
        placed_again(client, lambda tx: jobs.find(tx, job, client.tenant_id), place)
    assert tried == 1


def test_a_held_job_of_a_closed_tenants_admin_is_not_resumed(site: Site) -> None:
    root, admin, operator = opened(site, "command")
    ran, waits = held(site, admin, EVIL), admin.post("/api/jobs", json=shell(EVIL, hold=True)).json()["job_id"]
    own = held(site, root, ["true"])
    allow(root)
    for job in (ran, waits):
        for caller in (operator, admin):
            assert code(caller.post(f"/api/jobs/{job}/resume")) == (403, "kind_closed")
    assert operator.post(f"/api/jobs/{own}/resume").status_code == 200
    assert operator.post(f"/api/jobs/{waits}/cancel").status_code == 200
    assert root.post(f"/api/jobs/{ran}/resume").status_code == 200


def test_an_edited_template_or_schedule_answers_for_no_old_job(site: Site) -> None:
    """The admin of the system repairs what the tenant's admin left: only what they wrote is theirs."""
    root, admin, operator = opened(site, "command")
    template = admin.post("/api/job-templates", json={"name": "x", **shell(EVIL)}).json()["template_id"]
    job = operator.post("/api/jobs", json={"template_id": template}).json()["job_id"]
    paused(site, job, "shop")
    schedule = admin.post("/api/schedules", json=minutely(steps=[shell(EVIL)])).json()["schedule_id"]
    (number,) = ticked(site, schedule)
    execution = f"/api/schedule-executions/{number}"
    assert admin.post(f"{execution}/cancel").status_code == 200
    allow(root)
    for path in (f"/api/jobs/{job}/retry", f"{execution}/retry"):
        assert operator.post(path).status_code == 403
    harmless = {"argv": ["true"]}
    assert root.patch(f"/api/job-templates/{template}", json={"params": harmless}).status_code == 200
    assert root.patch(f"/api/schedules/{schedule}", json={"steps": [shell(["true"])]}).status_code == 200
    for path in (f"/api/jobs/{job}/retry", f"{execution}/retry"):
        assert operator.post(path).status_code == 403, path
    allowed = operator.post("/api/jobs", json={"template_id": template})
    assert allowed.status_code == 201
    paused(site, allowed.json()["job_id"], "shop")
    assert operator.post(f"/api/jobs/{allowed.json()['job_id']}/retry").status_code == 201


def ticked(site: Site, schedule: int) -> list[int | None]:
    """Executions that a schedule's own tick starts, as if its interval were over."""
    from headway.engine.scheduler.fire import fire, ready

    client = site.app.client.sibling(site.app.client.actor, "shop")
    found = client.schedules.get(schedule)
    prepared = ready(client, found)
    at = found.next_at
    assert at is not None
    decided = client.database.transact("fire", lambda tx: fire(tx, [prepared], now=at))
    return [tick.execution_id for tick in decided if tick.outcome == "FIRED"]


def test_a_worker_is_no_author(site: Site) -> None:
    """When the first job of a chain was pruned, its automatic retry was made by a worker, which decides nothing."""
    from headway.engine.client.authority import of_author
    from headway.model.jobs.job import SYSTEM, Actor

    client = site.app.client
    for actor in (SYSTEM, Actor("worker", "worker-1", "host:1")):
        assert not any(of_author(client, 1, actor.text()).may(kind) for kind in ("command", "policy"))
    assert of_author(client, 1, client.actor.text()).may("command")
