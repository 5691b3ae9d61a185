"""Secrets have owners: the doors refuse those of others and unknown ones alike, and a run refuses them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headway.errors import BadInput
from headway.testing import drain
from tests.api.test_authority import paused
from tests.support.service import Site, serving, shop

VALUE = "canary-4711"
SECRETS: dict[str, Any] = {
    "OLD": "env:OWNED",  # as ever: the tenant default, any task
    "SHOP": {"from": "env:OWNED", "tenants": ["shop"]},
    "ALL": {"from": "env:OWNED", "tenants": "*", "tasks": ["story.*"]},
}


@pytest.fixture
def site(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("OWNED", VALUE)
    with serving(database_url, secrets=SECRETS) as found:
        found.app.client.tenants.create("shop")
        yield found


def params(name: str) -> dict[str, Any]:
    return {"topic": {"$secret": name}}


def wish(name: str, task: str = "story.generate") -> dict[str, Any]:
    return {"task": task, "params": params(name)}


def said(answer: httpx.Response, name: str) -> tuple[int, str, str]:
    """What a refusal tells, without the name that was asked for."""
    body = answer.json()
    return answer.status_code, body["code"], json.dumps(body).replace(name, "NAME")


def doors(site: Site, client: httpx.Client, name: str) -> dict[str, httpx.Response]:
    """Gives params with this secret at every door that takes params."""
    plain = {"task": "story.generate", "params": {"topic": "fog"}}
    cron = {"cron": "0 3 * * *"}
    job = client.post("/api/jobs", json={**plain, "hold": True}).json()["job_id"]
    template = client.post("/api/job-templates", json={"name": f"plain {job}", **plain}).json()["template_id"]
    schedule = client.post("/api/schedules", json={"name": f"plain {job}", **cron, "steps": [plain]}).json()[
        "schedule_id"
    ]
    held = client.post("/api/jobs", json=plain).json()["job_id"]
    paused(site, held, "shop")
    return {
        "job": client.post("/api/jobs", json=wish(name)),
        "jobs": client.post("/api/jobs/batch", json={"jobs": [wish(name)]}),
        "group": client.post("/api/job-groups", json={"name": "g", "jobs": [{"name": "a", **wish(name)}]}),
        "legacy": client.post("/jobs/story/trigger", json=params(name)),
        "target": client.post("/api/targets/desk/jobs", json=wish(name)),
        "template": client.post("/api/job-templates", json={"name": f"t {job}", **wish(name)}),
        "template edit": client.patch(f"/api/job-templates/{template}", json={"params": params(name)}),
        "job of a template": client.post("/api/jobs", json={"template_id": template, "params": params(name)}),
        "schedule": client.post("/api/schedules", json={"name": f"s {job}", **cron, "steps": [wish(name)]}),
        "schedule run": client.post(f"/api/schedules/{schedule}/run", json={"params": {"words": {"$secret": name}}}),
        "schedule edit": client.patch(f"/api/schedules/{schedule}", json={"params": {"words": {"$secret": name}}}),
        "edit": client.patch(f"/api/jobs/{job}", json={"params": params(name)}),
        "retry": client.post(f"/api/jobs/{held}/retry", json={"params": params(name)}),
        "direct": client.post("/api/direct/story.generate", json={"params": params(name)}),
        "path of a task": client.post("/story/generate", json=params(name)),
    }


def test_every_door_refuses_the_secrets_of_others_and_unknown_ones_alike(site: Site) -> None:
    client = site.as_(site.token("operator", tenant="shop"))
    foreign, unknown = doors(site, client, "OLD"), doors(site, client, "NONE")
    for door, answer in foreign.items():
        assert (answer.status_code, answer.json().get("code")) == (422, "bad_params"), (door, answer.text)
        assert "which is unknown, or not for story.generate of the tenant shop" in answer.text, door
        assert answer.text.replace("OLD", "NAME") == unknown[door].text.replace("NONE", "NAME"), door
    own = doors(site, client, "SHOP")
    assert {door: answer.text for door, answer in own.items() if answer.status_code >= 400} == {}


def test_a_file_to_apply_names_no_secret_of_others(site: Site) -> None:
    client = site.as_(site.token("admin", tenant="shop"))

    def applied(name: str) -> httpx.Response:
        text = (
            f'[[templates]]\nname = "t"\ntask = "story.generate"\nparams = {{ topic = {{ "$secret" = "{name}" }} }}\n'
        )
        return client.post("/api/apply", json={"text": text})

    foreign, unknown = applied("OLD"), applied("NONE")
    assert (foreign.status_code, foreign.json()["code"]) == (422, "bad_file"), foreign.text
    assert foreign.text.replace("OLD", "NAME") == unknown.text.replace("NONE", "NAME")
    assert client.get("/api/job-templates").json()["items"] == []
    assert applied("SHOP").status_code == 200


@pytest.mark.parametrize("door", ["http", "python"])
def test_a_plan_with_an_unknown_name_is_refused_when_it_is_made(site: Site, door: str) -> None:
    """For the owner of the database too: a job would fail at once, a schedule at night."""
    script: dict[str, Any] = {"task": "sql", "params": {"connection": "hr", "script": "select 1"}}
    with serving(site.app.settings.database, secrets=SECRETS, connections={"crm": "crm.db"}) as other:
        client = other.app.client
        for step, field, why in (
            (wish("NONE"), "params.topic", "asks for the secret NONE, which is unknown"),
            (script, "params.connection", "names the connection hr, which is unknown"),
        ):
            definition = {"interval": 60, "steps": [{**step, "name": "a"}]}
            if door == "http":
                made = other.http.post("/api/schedules", json={"name": "s", **definition, "interval": "1m"})
                kept = other.http.post("/api/job-templates", json={"name": "t", **step})
                for answer, place in ((made, f"steps[0].{field}"), (kept, field)):
                    assert answer.status_code == 422, answer.text
                    assert place in [problem["field"] for problem in answer.json()["errors"]]
                    assert why in answer.text
            else:
                with pytest.raises(BadInput, match=why):
                    client.schedules.create("s", definition)
                with pytest.raises(BadInput, match=why):
                    client.templates.create("t", step["task"], params=step["params"])
            assert client.schedules.list() == []
        known = {**script, "params": {**script["params"], "connection": "crm"}}
        plan = client.schedules.create("s", {"interval": 60, "steps": [known]})
        with pytest.raises(BadInput, match="names the connection hr"):
            client.schedules.edit(plan.id, {"steps": [script]})
    # Settings that name no connection refuse none, because those of a worker may name it.
    assert site.app.client.schedules.create("t", {"interval": 60, "steps": [script]}).id > plan.id


def test_a_secret_of_some_tasks_is_for_no_other_task(site: Site) -> None:
    client = site.as_(site.token("operator", tenant="shop"))
    assert client.post("/api/jobs", json=wish("ALL")).status_code == 201
    assert said(client.post("/api/jobs", json=wish("ALL", "research.run")), "ALL") == said(
        client.post("/api/jobs", json=wish("NONE", "research.run")), "NONE"
    )


def test_a_run_refuses_what_no_door_could(site: Site, database_url: str) -> None:
    """A process without these settings places the jobs; the worker decides by its own."""
    jobs = {}
    for tenant in ("default", "shop"):
        with shop(database_url) as elsewhere:
            elsewhere.tenant = tenant
            for name in ("OLD", "SHOP", "ALL", "NONE"):
                for task in ("story.generate", "research.run"):
                    jobs[tenant, name, task] = elsewhere.enqueue(task, params(name), retry=0)
            drain(site.app)
            rows = {key: job.row for key, job in jobs.items() if key[0] == tenant}
            errors = {key: run.error for key in rows if (run := jobs[key].run) is not None}
            done = {key[1:] for key, row in rows.items() if row.status.name == "COMPLETED"}
            own = {"default": "OLD", "shop": "SHOP"}[tenant]
            assert done == {(own, "story.generate"), (own, "research.run"), ("ALL", "story.generate")}
            for (_, name, task), error in errors.items():
                if (name, task) not in done:
                    assert error == (
                        f"params.topic asks for the secret {name}, which is unknown, or not for {task} of the tenant"
                        f" {tenant}: add it to secrets in the worker's settings"
                    )
            assert len(errors) == len(rows)


def test_the_owner_of_the_database_is_refused_what_the_settings_know(database_url: str) -> None:
    """The worker's settings may name more secrets, so an unknown name is left to the run."""
    with shop(database_url, secrets=SECRETS) as app:
        app.client.tenants.create("shop")
        with pytest.raises(BadInput, match="of the tenant default: add it"):
            app.enqueue("story.generate", params("SHOP"))
        app.enqueue("story.generate", params("NONE"))
        app.enqueue("story.generate", params("OLD"))
