"""The matrix of roles, routes and tenants, extended by data: every way in which params of an admin kind can be decided.

The ways are generated from the declared routes. A new route that takes data must be put into the table below.
"""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

import httpx
import pytest

from headway.api.app import NOUNS
from headway.api.http.routing import RouteSpec
from headway.dashboard.app import PAGES
from headway.model.access.authority import ADMIN_TASKS
from headway.model.access.permissions import Role
from headway.store.db import Tx
from headway.store.schedules import schedules
from headway.tasks import BUILT_IN
from tests.api.test_authority import STORY, minutely, paused, plan
from tests.support import forms
from tests.support.service import Site, serving

PARAMS: dict[str, dict[str, Any]] = {
    "command": {"argv": ["true"]},
    "powershell": {"script": "1"},
    "sql": {"connection": "books", "script": "select 1"},
}
EVIL: dict[str, dict[str, Any]] = {
    "command": {"argv": ["sh", "-c", "id"]},
    "powershell": {"script": "id"},
    "sql": {"connection": "books", "script": "drop table x"},
}
FED: dict[str, dict[str, Any]] = {
    "command": {"argv": {"$result": "s0"}},
    "powershell": {"script": {"$result": "s0"}},
    "sql": {"connection": "books", "script": {"$result": "s0"}},
}


@dataclass
class Stage:
    """An admin's things of one kind, and the tokens of the roles."""

    site: Site
    task: str
    admin: httpx.Client
    lesser: httpx.Client

    @property
    def evil(self) -> dict[str, Any]:
        return {"task": self.task, "params": EVIL[self.task]}

    def job(self) -> int:
        body = {"task": self.task, "params": PARAMS[self.task], "retry_policy": {"max_attempts": 0}, "hold": True}
        return int(self.admin.post("/api/jobs", json=body).json()["job_id"])

    def held(self, target: str | None = None) -> int:
        body = {"task": self.task, "params": PARAMS[self.task], "retry_policy": {"max_attempts": 0}, "target": target}
        job = int(self.admin.post("/api/jobs", json=body).json()["job_id"])
        paused(self.site, job)
        return job

    def feeding(self, target: str | None = None) -> int:
        """A PAUSED step whose result becomes the params of the next."""
        steps = plan({**STORY, "target": target}, {"task": self.task, "params": FED[self.task]})
        group = self.admin.post("/api/job-groups", json=steps)
        first = int(group.json()["steps"][0]["job_id"])
        paused(self.site, first)
        return first

    def waiting_feeder(self) -> int:
        """A queued step whose result becomes the params of the next."""
        group = self.admin.post("/api/job-groups", json=plan(STORY, {"task": self.task, "params": FED[self.task]}))
        return int(group.json()["steps"][0]["job_id"])

    def template(self) -> int:
        body = {"name": f"t{len(self.admin.get('/api/job-templates').json()['items'])}", "task": self.task}
        return int(
            self.admin.post("/api/job-templates", json={**body, "params": PARAMS[self.task]}).json()["template_id"]
        )

    def plain(self) -> int:
        """A schedule of an ordinary task."""
        name = f"s{len(self.admin.get('/api/schedules').json()['items'])}"
        made = self.admin.post("/api/schedules", json={**minutely(steps=[STORY]), "name": name})
        return int(made.json()["schedule_id"])

    def schedule(self) -> int:
        name = f"s{len(self.admin.get('/api/schedules').json()['items'])}"
        step = {"task": self.task, "params": PARAMS[self.task]}
        return int(
            self.admin.post("/api/schedules", json={**minutely(steps=[step]), "name": name}).json()["schedule_id"]
        )


Way = Callable[[Stage], tuple[str, Any]]
# Each route that takes data, and the request by which a lesser role would decide params of an admin kind.
WAYS: dict[tuple[str, str], list[Way]] = {
    ("POST", "/api/jobs"): [
        lambda s: ("/api/jobs", s.evil),
        lambda s: ("/api/jobs", {"template_id": s.template(), "params": EVIL[s.task]}),
    ],
    ("POST", "/api/jobs/batch"): [
        lambda s: ("/api/jobs/batch", {"jobs": [STORY, s.evil]}),
        lambda s: ("/api/jobs/batch", {"jobs": [STORY, s.evil], "mode": "sequential"}),
    ],
    ("POST", "/api/job-groups"): [lambda s: ("/api/job-groups", plan(STORY, s.evil))],
    ("PATCH", "/api/jobs/{job_id}"): [
        lambda s: (f"/api/jobs/{s.job()}", {"params": EVIL[s.task]}),
        lambda s: (f"/api/jobs/{s.waiting_feeder()}", {"params": {"topic": "x"}}),
    ],
    ("POST", "/api/jobs/{job_id}/retry"): [
        lambda s: (f"/api/jobs/{s.held()}/retry", {"params": EVIL[s.task]}),
        lambda s: (f"/api/jobs/{s.feeding()}/retry", {"params": {"topic": "x"}}),
    ],
    ("POST", "/api/job-runs/{run_id}/retry"): [
        lambda s: (f"/api/job-runs/{s.held()}/retry", {"params": EVIL[s.task]}),
    ],
    ("POST", "/api/jobs/{job_id}/resolve"): [
        lambda s: (f"/api/jobs/{s.feeding()}/resolve", {"result": EVIL[s.task]}),
    ],
    ("POST", "/api/targets/{name:path}/jobs"): [lambda s: ("/api/targets/desk/jobs", s.evil)],
    ("POST", "/api/targets/{name:path}/jobs/{job_id}/retry"): [
        lambda s: (f"/api/targets/desk/jobs/{s.held('desk')}/retry", {"params": EVIL[s.task]}),
    ],
    ("POST", "/api/targets/{name:path}/jobs/{job_id}/resolve"): [
        lambda s: (f"/api/targets/table/jobs/{s.feeding('table')}/resolve", {"result": EVIL[s.task]}),
    ],
    ("POST", "/targets/{name:path}/jobs"): [lambda s: ("/targets/desk/jobs", s.evil)],
    ("POST", "/targets/{name:path}/jobs/"): [lambda s: ("/targets/desk/jobs/", s.evil)],
    ("POST", "/api/job-templates"): [lambda s: ("/api/job-templates", {"name": "mine", **s.evil})],
    ("PATCH", "/api/job-templates/{template_id}"): [
        lambda s: (f"/api/job-templates/{s.template()}", {"params": EVIL[s.task]}),
    ],
    ("POST", "/api/schedules"): [
        lambda s: ("/api/schedules", minutely(steps=[s.evil])),
        lambda s: ("/api/schedules", minutely(template_id=s.template(), params=EVIL[s.task])),
    ],
    ("PUT", "/api/schedules/{schedule_id}"): [
        lambda s: (f"/api/schedules/{s.schedule()}", minutely(steps=[s.evil])),
    ],
    ("PATCH", "/api/schedules/{schedule_id}"): [
        lambda s: (f"/api/schedules/{s.schedule()}", {"params": EVIL[s.task]}),
    ],
    ("POST", "/api/schedules/{schedule_id}/run"): [
        lambda s: (f"/api/schedules/{s.schedule()}/run", {"params": EVIL[s.task]}),
    ],
    ("POST", "/api/direct/{task}"): [lambda s: (f"/api/direct/{s.task}", {"params": EVIL[s.task]})],
    ("POST", "/api/apply"): [
        lambda s: ("/api/apply", {"text": f'[[templates]]\nname = "mine"\ntask = "{s.task}"\n', "file": "a.toml"}),
    ],
}
# The old addresses take no task: the settings name it.
FIXED = {("POST", "/jobs/batch/trigger"), ("POST", "/jobs/batch/trigger/")}
# Names of body fields that carry data into work.
DATA = {"params", "result", "task", "template_id", "template", "steps", "jobs", "text", "on_failure", "open_params"}


# Names of body fields that decide when, where and how long work runs, or that place no work at all.
HARMLESS = {
    # when, where and how long
    *("priority", "target", "resources", "timeout", "retry_policy", "budget", "on_lost", "on_error", "on_shutdown"),
    *("max_attempts", "base_delay", "max_delay", "jitter", "delay", "not_before", "expires_at", "hold", "wait", "ttl"),
    *(
        "cron",
        "interval",
        "times",
        "timezone",
        "overlap",
        "catch_up",
        "window",
        "cap",
        "start",
        "end",
        "since",
        "until",
    ),
    *("stage", "index", "mode", "continue_on_failure", "again", "force", "dry_run", "enabled", "duration"),
    # names and words for people, and the filters of lists
    *("name", "key", "note", "description", "reason", "file", "filter", "action", "expected_count", "status", "q"),
    *("group_id", "schedule_id", "failure_kind", "created_by", "exhausted"),
    # the queue's order and its limits
    *("to", "before", "after", "rank", "job_ids", "everybody", "limit", "limits", "policy", "targets", "aging"),
    # where news of the work is sent
    *("webhook_url", "webhook_events", "url", "events", "secret", "max_tries"),
    # tokens and tenants, for admins, of the system where they give more than they have
    *("role", "tenant", "expires", "max_queued", "max_running", "max_schedules", "allow", "default_allow"),
}


def data_routes() -> Iterator[RouteSpec]:
    for noun in NOUNS:
        for one in noun.declared:
            if one.method != "GET" and one.role is not None and DATA & set(_fields(one)):
                yield one


def _fields(one: RouteSpec) -> list[str]:
    found: list[str] = []
    for parameter in inspect.signature(one.endpoint, eval_str=True).parameters.values():
        for kind in getattr(parameter.annotation, "__args__", (parameter.annotation,)):
            found += getattr(kind, "model_fields", {})
    return found


def test_every_route_that_takes_data_is_in_the_table() -> None:
    assert {(one.method, one.path) for one in data_routes()} == set(WAYS) | FIXED


def test_every_field_of_a_body_carries_data_or_is_named_as_harmless() -> None:
    fields: set[str] = set()
    for noun in NOUNS:
        for one in noun.declared:
            # The old addresses name no task, and fill in params of their own fixed task.
            if one.method != "GET" and not one.deprecated:
                for parameter in inspect.signature(one.endpoint, eval_str=True).parameters.values():
                    fields |= _inner(parameter.annotation)
    assert not DATA & HARMLESS
    assert fields == DATA | HARMLESS


def _inner(annotation: object) -> set[str]:
    """The fields of a body and of the bodies in it."""
    found: set[str] = set()
    for name, field in getattr(annotation, "model_fields", {}).items():
        found |= {name} | _inner(field.annotation)
    for kind in get_args(annotation):
        found |= _inner(kind)
    return found


# A module that Headway would import: the kind `policy`.
DOTTED = "headway.model.groups.group.SkipRest"
POLICIES: dict[tuple[str, str], list[Way]] = {
    ("POST", "/api/jobs/batch"): [
        lambda s: ("/api/jobs/batch", {"jobs": [STORY], "mode": "sequential", "on_failure": DOTTED})
    ],
    ("POST", "/api/job-groups"): [lambda s: ("/api/job-groups", {**plan(STORY), "on_failure": DOTTED})],
    ("POST", "/api/schedules"): [lambda s: ("/api/schedules", minutely(steps=[STORY], on_failure=DOTTED))],
    ("PUT", "/api/schedules/{schedule_id}"): [
        lambda s: (f"/api/schedules/{s.plain()}", minutely(steps=[STORY], on_failure=DOTTED))
    ],
    ("PATCH", "/api/schedules/{schedule_id}"): [lambda s: (f"/api/schedules/{s.plain()}", {"on_failure": DOTTED})],
    ("POST", "/api/apply"): [
        lambda s: (
            "/api/apply",
            {
                "text": f'[[schedules]]\nname = "x"\ninterval = 60\non_failure = "{DOTTED}"\n'
                '[[schedules.steps]]\ntask = "research.run"\nparams = {topic = "x"}\n',
            },
        )
    ],
}


def test_every_route_that_takes_a_policy_is_in_the_table() -> None:
    taking = {(one.method, one.path) for one in data_routes() if "on_failure" in _fields(one)}
    assert taking | {("POST", "/api/apply")} == set(POLICIES)


def test_no_route_lets_a_lesser_role_name_a_policy(site: Site) -> None:
    admin, operator = (site.as_(site.token(role, name=role)) for role in ("admin", "operator"))
    stage = Stage(site, "policy", admin, operator)
    for (method, path), ways in POLICIES.items():
        for way in ways:
            address, body = way(stage)
            answer = operator.request(method, address, json=body)
            assert answer.status_code == 403, (method, path, answer.text)
    site.app.client.tenants.create("shop", default_allow=())
    for (method, path), ways in POLICIES.items():
        for way in ways:
            address, body = way(stage)
            answer = admin.request(method, address, json=body)
            assert answer.status_code == 403, (method, path, answer.text)


@pytest.fixture(params=sorted(ADMIN_TASKS))
def stage(request: pytest.FixtureRequest, database_url: str) -> Iterator[Stage]:
    with serving(database_url) as site:
        made = [site.as_(site.token(role, name=role)) for role in ("admin", "operator")]
        yield Stage(site, request.param, *made)


def test_no_route_lets_an_operator_decide_the_params_of_an_admin_kind(stage: Stage) -> None:
    for (method, path), ways in WAYS.items():
        for n, way in enumerate(ways):
            address, body = way(stage)
            answer = stage.lesser.request(method, address, json=body)
            assert answer.status_code == 403, (method, path, n, answer.text)
    assert all(
        "id" not in str(job["params"]) for job in stage.admin.get(f"/api/jobs?task={stage.task}").json()["items"]
    )


def test_no_route_lets_the_admin_of_a_closed_tenant_decide_them(stage: Stage) -> None:
    stage.site.app.client.tenants.create("shop", default_allow=())
    root = stage.site.as_(stage.site.token("admin", tenant=None, name="root"))
    closed = Stage(stage.site, stage.task, root, stage.admin)  # `default` is closed now; the system made the things
    for (method, path), ways in WAYS.items():
        for n, way in enumerate(ways):
            address, body = way(closed)
            answer = closed.lesser.request(method, address, json=body)
            assert answer.status_code == 403, (method, path, n, answer.text)


def test_no_admin_kind_reads_a_checkpoint() -> None:
    """Only running work writes a checkpoint; a retry hands it on, and these tasks do not look at it."""
    for task in BUILT_IN:
        assert "checkpoint" not in inspect.getsource(inspect.getmodule(task.function) or task), task.name  # type: ignore[arg-type]


def test_roles_below_operator_reach_no_route_that_takes_data() -> None:
    assert all(one.role is not None and one.role.may(Role.OPERATOR) for one in data_routes())


# --- work that is placed without a body ---------------------------------------------------------------------------

# Each route that places work from what is stored. Cells give the address, and a body that carries no data.
PLACES: dict[tuple[str, str], Callable[[Placed], tuple[str, Any]]] = {
    ("POST", "/api/jobs/{job_id}/retry"): lambda p: (f"/api/jobs/{p.job}/retry", None),
    ("POST", "/api/jobs/{job_id}/resume"): lambda p: (f"/api/jobs/{p.job}/resume", None),
    ("POST", "/api/job-runs/{run_id}/retry"): lambda p: (f"/api/job-runs/{p.job}/retry", None),
    ("POST", "/api/targets/{name:path}/jobs/{job_id}/retry"): lambda p: (
        f"/api/targets/desk/jobs/{p.on_target}/retry",
        None,
    ),
    ("POST", "/api/targets/{name:path}/jobs/{job_id}/resume"): lambda p: (
        f"/api/targets/desk/jobs/{p.on_target}/resume",
        None,
    ),
    ("POST", "/api/job-groups/{group_id}/retry"): lambda p: (f"/api/job-groups/{p.group}/retry", None),
    ("POST", "/api/schedule-executions/{execution_id}/retry"): lambda p: (
        f"/api/schedule-executions/{p.execution}/retry",
        None,
    ),
    ("POST", "/api/schedules/{schedule_id}/run"): lambda p: (f"/api/schedules/{p.schedule}/run", None),
    ("POST", "/api/schedules/{schedule_id}/enable"): lambda p: (f"/api/schedules/{p.schedule}/enable", None),
    ("POST", "/api/schedules/{schedule_id}/backfill"): lambda p: (
        f"/api/schedules/{p.schedule}/backfill",
        {"since": p.created_at, "until": p.created_at},
    ),
}
# The last words of their addresses. A queue or a target that goes on runs what waits, which is left alone.
PLACING = {"retry", "resume", "run", "enable", "backfill"}
WAITING = {("POST", "/api/queue/resume"), ("POST", "/api/targets/{name:path}/resume")}


def test_every_route_that_places_stored_work_is_in_the_table() -> None:
    declared = {(one.method, one.path) for noun in NOUNS for one in noun.declared if not one.deprecated}
    assert {one for one in declared if one[1].rsplit("/", 1)[-1] in PLACING} - WAITING == set(PLACES)


@dataclass
class Placed:
    """Things of an admin kind that a tenant's admin made while the tenant was open for it."""

    job: int
    on_target: int
    group: int
    execution: int
    schedule: int
    created_at: str


def _placed(site: Site, admin: httpx.Client, task: str) -> Placed:
    step = {"task": task, "params": PARAMS[task], "retry_policy": {"max_attempts": 0}}
    job = int(admin.post("/api/jobs", json=step).json()["job_id"])
    paused(site, job, "shop")
    on_target = int(admin.post("/api/jobs", json={**step, "target": "desk"}).json()["job_id"])
    paused(site, on_target, "shop")
    group = int(admin.post("/api/job-groups", json=plan(step)).json()["group_id"])
    assert admin.post(f"/api/job-groups/{group}/cancel").status_code == 200
    schedule = admin.post("/api/schedules", json=minutely(steps=[step], enabled=False)).json()
    run = admin.post(f"/api/schedules/{schedule['schedule_id']}/run").json()
    assert admin.post(f"/api/schedule-executions/{run['execution_id']}/cancel").status_code == 200
    return Placed(job, on_target, group, int(run["execution_id"]), int(schedule["schedule_id"]), schedule["created_at"])


def test_no_route_places_again_what_a_closed_tenants_admin_made(stage: Stage) -> None:
    site = stage.site
    site.app.client.tenants.create("shop", default_allow=())
    root = site.as_(site.token("admin", tenant=None, name="root"), **{"Headway-Tenant": "shop"})
    admin, operator = (site.as_(site.token(role, tenant="shop", name=f"of {role}")) for role in ("admin", "operator"))
    assert root.patch("/api/tenants/shop", json={"allow": [stage.task]}).status_code == 200
    placed = _placed(site, admin, stage.task)
    assert root.patch("/api/tenants/shop", json={"allow": []}).status_code == 200
    before = admin.get("/api/jobs").json()["items"]
    for caller in (admin, operator):
        for (method, path), way in PLACES.items():
            address, body = way(placed)
            answer = caller.request(method, address, json=body)
            assert answer.status_code == 403, (method, path, answer.text)
        found = {"task": stage.task, "status": ["PAUSED"]}
        for action in ("retry", "resume"):
            wish = {"filter": found, "action": action, "expected_count": 2}
            done = caller.post("/api/jobs/bulk", json=wish).json()
            assert (done["changed"], len(done["refused"])) == ([], 2), action
    assert {job["status"] for job in admin.get("/api/jobs").json()["items"]} == {"PAUSED", "CANCELLED"}
    assert [job["job_id"] for job in admin.get("/api/jobs").json()["items"]] == [job["job_id"] for job in before]


def test_a_schedule_that_this_version_cannot_read_is_its_authors(site: Site) -> None:
    """A newer version wrote it: it may run whatever its author may give."""
    admin, operator = (site.as_(site.token(role, name=role)) for role in ("admin", "operator"))
    made = admin.post("/api/schedules", json=minutely(steps=[STORY])).json()["schedule_id"]
    own = operator.post("/api/schedules", json={**minutely(steps=[STORY]), "name": "own"}).json()["schedule_id"]
    for schedule in (made, own):
        newer(site, schedule)
        assert not site.app.client.schedules.get(schedule).readable
    for method, body in (("PATCH", {"name": "mine"}), ("DELETE", None)):
        refused = operator.request(method, f"/api/schedules/{made}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (403, "admin_only"), (method, refused.text)
    assert operator.delete(f"/api/schedules/{own}").status_code == 200
    assert admin.delete(f"/api/schedules/{made}").status_code == 200


def newer(site: Site, schedule: int) -> None:
    """Gives a schedule a definition with a word that this version does not know."""

    def work(tx: Tx) -> None:
        seen = schedules.kept(tx, 1, [schedule])[schedule]
        definition = {**json.loads(seen.definition), "invented_later": {"task": "command"}}
        schedules.save(tx, replace(seen, definition=json.dumps(definition)))

    site.app.client.database.transact("newer", work)


# --- forms of the dashboard ---------------------------------------------------------------------------------------

Form = Callable[[Stage], tuple[str, dict[str, str]]]
# Each form that carries data, by its address and what an operator does with it.
FORMS: dict[tuple[str, str], Form] = {
    ("/jobs/new", "a job"): lambda s: ("/jobs/new", {"task": s.task, "params": json.dumps(EVIL[s.task])}),
    ("/templates/new", "a template"): lambda s: (
        "/templates/new",
        {"name": "mine", "task": s.task, "params": json.dumps(EVIL[s.task])},
    ),
    ("/templates/{template_id:int}/edit", "an edit"): lambda s: (
        f"/templates/{s.template()}/edit",
        {"name": "mine", "task": s.task, "params": json.dumps(EVIL[s.task]), "version": "1"},
    ),
    ("/templates/{template_id:int}/job", "a job of it"): lambda s: (
        f"/templates/{s.template()}/job",
        {"params": json.dumps(EVIL[s.task])},
    ),
    ("/jobs/{job_id:int}/edit", "an edit"): lambda s: (f"/jobs/{s.job()}/edit", {"params": json.dumps(EVIL[s.task])}),
    ("/jobs/{job_id:int}/edit", "an edit of a step before"): lambda s: (
        f"/jobs/{s.waiting_feeder()}/edit",
        {"params": '{"topic": "id"}'},
    ),
    ("/jobs/{job_id:int}/retry", "a retry"): lambda s: (
        f"/jobs/{s.held()}/retry",
        {"params": json.dumps(EVIL[s.task])},
    ),
    ("/jobs/{job_id:int}/resolve", "a result"): lambda s: (
        f"/jobs/{s.feeding()}/resolve",
        {"result": json.dumps(EVIL[s.task])},
    ),
    ("/schedules/new", "a schedule"): lambda s: ("/schedules/new", _schedule(s)),
    ("/schedules/{schedule_id:int}/edit", "an edit"): lambda s: (
        f"/schedules/{s.schedule()}/edit",
        {**_schedule(s), "version": "1"},
    ),
}
# Forms that place stored work; `PLACES` tries the verbs behind them.
PLACING_FORMS = {
    *("/jobs/{job_id:int}/resume", "/executions/{number:int}/retry", "/groups/{number:int}/retry"),
    *(f"/schedules/{{schedule_id:int}}/{verb}" for verb in ("run", "enable", "backfill")),
}
# Forms that carry neither data nor work; those for admins are not an operator's to send.
HARMLESS_FORMS = {
    *("/queue/act", "/queue/pause", "/queue/resume", "/reservations/{reservation_id:int}/release"),
    *(f"/jobs/{{job_id:int}}/{verb}" for verb in ("cancel", "interrupt", "release", "move")),
    *(f"/schedules/{{schedule_id:int}}/{verb}" for verb in ("disable", "seen", "delete")),
    *("/templates/{template_id:int}/archive", "/executions/{number:int}/cancel", "/groups/{number:int}/cancel"),
    *("/targets/pause", "/targets/resume", "/deliveries/{number:int}/replay", "/login", "/logout", "/choose"),
}


def _schedule(stage: Stage) -> dict[str, str]:
    when = {"name": "mine", "when": "cron", "cron": "30 2 * * *", "timezone": "UTC", "what": "steps"}
    return {**when, "step-0-task": stage.task, "step-0-params": json.dumps(EVIL[stage.task])}


def test_every_form_carries_data_or_is_named_as_harmless() -> None:
    declared = {
        page.path
        for pages in PAGES
        for page in pages.declared
        if page.method == "POST" and (page.role is None or not page.role.may(Role.ADMIN))
    }
    assert {path for path, _ in FORMS} | PLACING_FORMS | HARMLESS_FORMS == declared


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_no_form_lets_an_operator_decide_the_params_of_an_admin_kind(stage: Stage, form: tuple[str, str]) -> None:
    action, fields = FORMS[form](stage)
    browser = stage.site.as_(stage.site.token("operator", name="browser"))
    page = forms.read(browser, "/jobs/new")
    answer = forms.post(browser, action, csrf=forms.csrf(page), **fields)
    assert "only an admin" in html.unescape(answer.text) or answer.status_code == 403, answer.text[-3_000:]
    jobs = stage.admin.get(f"/api/jobs?task={stage.task}").json()["items"]
    assert all("id" not in str(job["params"]) for job in jobs)
    assert all(one["name"] != "mine" for one in stage.admin.get("/api/job-templates").json()["items"])
    assert all(one["name"] != "mine" for one in stage.admin.get("/api/schedules").json()["items"])
