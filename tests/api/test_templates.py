"""`/api/job-templates` over real HTTP: making, changing, archiving, and who may."""

from __future__ import annotations

from typing import Any

from headway.api.schemas.common import PageSchema
from headway.api.schemas.schedules import TemplateSchema
from tests.support.service import Site
from tests.support.wire import all_pages, fits, neighbour, refused

STORY = {"name": "fog", "task": "story.generate", "params": {"topic": "fog"}, "priority": 5, "timeout": "30m"}
SHELL = {"name": "shell", "task": "command", "params": {"argv": ["true"]}, "open_params": ["stdin"]}
PATH = "/api/job-templates"


def test_a_template_is_made_changed_used_and_archived(site: Site) -> None:
    key = {"Idempotency-Key": "t1"}
    made = site.http.post(PATH, json={**STORY, "retry_policy": {"max_attempts": 1, "jitter": None}}, headers=key)
    one = fits(TemplateSchema, made, 201)
    path, etag = made.headers["location"], made.headers["etag"]
    assert (path, etag, one["version"]) == (f"{PATH}/{one['template_id']}", '"1"', 1)
    assert (one["priority"], one["timeout"], one["retry_policy"]) == (5, "30m", {"max_attempts": 1})
    again = site.http.post(PATH, json={**STORY, "retry_policy": {"max_attempts": 1, "jitter": None}}, headers=key)
    assert (again.headers["idempotent-replayed"], again.json()) == ("true", one)
    refused(site.http.post(PATH, json=STORY), 422, "name_taken", "name")

    edited = site.http.patch(
        path, json={"priority": 7, "timeout": None, "params": {"topic": "x"}}, headers={"If-Match": etag}
    )
    two = fits(TemplateSchema, edited)
    assert (two["priority"], two["timeout"], two["params"], two["retry_policy"]) == (
        7,
        None,
        {"topic": "x"},
        {"max_attempts": 1},
    )
    assert edited.headers["etag"] == '"2"' == site.http.get(path).headers["etag"]
    refused(site.http.patch(path, json={"priority": 8}, headers={"If-Match": etag}), 412, "version_mismatch")
    refused(site.http.delete(path, headers={"If-Match": etag}), 412, "version_mismatch")
    refused(site.http.patch(path, json={"name": None}), 422, "bad_input", "name")

    job = site.http.post("/api/jobs", json={"template_id": one["template_id"]}).json()
    assert (job["template_id"], job["priority"], job["params"]) == (one["template_id"], 7, {"topic": "x"})
    gone = fits(TemplateSchema, site.http.delete(path))
    assert gone["archived_at"] is not None
    assert site.http.get(PATH).json()["items"] == []
    assert [each["name"] for each in site.http.get(f"{PATH}?archived=true").json()["items"]] == ["fog"]
    assert site.http.get(path).json() == gone
    refused(site.http.patch(path, json={"priority": 1}), 409, "wrong_state")
    refused(site.http.post("/api/jobs", json={"template_id": one["template_id"]}), 422, "template_archived")
    assert site.http.post(PATH, json=STORY).status_code == 201


def test_an_impossible_job_is_refused_by_its_field(site: Site) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "task": {"task": "story.generat"},
        "params.topic": {"params": {"topic": 5}},
        "priority": {"priority": 101},
        "retry_policy.tries": {"retry_policy": {"tries": 3}},
        "colour": {"colour": "red"},
        "resources": {"resources": ["gpu"]},
    }
    for field, wish in wrong.items():
        answer = site.http.post(PATH, json={**STORY, **wish})
        assert answer.status_code == 422, wish
        assert [one["field"] for one in answer.json()["errors"]] == [field]
    assert site.http.get(PATH).json()["items"] == []
    refused(site.http.get(f"{PATH}/77"), 404, "unknown_template")
    for n in range(5):
        site.http.post(PATH, json={**STORY, "name": f"t{n}"})
    assert [one["name"] for one in all_pages(site.http, PATH, limit=2)] == ["t0", "t1", "t2", "t3", "t4"]
    fits(PageSchema[TemplateSchema], site.http.get(PATH))


def test_templates_of_commands_are_an_admins_and_those_of_others_are_not_there(site: Site) -> None:
    shell = site.http.post(PATH, json=SHELL).headers["location"]
    story = site.http.post(PATH, json=STORY).headers["location"]
    other, operator = neighbour(site), site.as_(site.token("operator"))
    refused(operator.post(PATH, json={**SHELL, "name": "mine"}), 403, "admin_only")
    refused(operator.patch(shell, json={"open_params": ["argv"]}), 403, "admin_only")
    refused(operator.patch(shell, json={"task": "story.generate"}), 403, "admin_only")
    refused(operator.patch(story, json={"task": "command", "params": {"argv": ["id"]}}), 403, "admin_only")
    refused(operator.delete(shell), 403, "admin_only")
    number = int(shell.rpartition("/")[2])
    assert operator.post("/api/jobs", json={"template_id": number, "params": {"stdin": "x"}}).status_code == 201
    refused(operator.post("/api/jobs", json={"template_id": number, "params": {"argv": ["id"]}}), 403, "admin_only")
    assert operator.patch(story, json={"priority": 1}).json()["priority"] == 1
    unknown = other.get(f"{PATH}/987654").json()["detail"].replace("987654", str(number))
    assert refused(other.get(shell), 404, "unknown_template") == unknown
    assert (other.patch(shell, json={"priority": 1}).status_code, other.delete(shell).status_code) == (404, 404)
    assert other.get(PATH).json()["items"] == []
