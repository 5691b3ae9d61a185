"""Tasks, workers, figures, logs and files over real HTTP."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import pytest

from headway import Context
from headway.api.schemas.common import PageSchema
from headway.api.schemas.system import ArtifactSchema, LogSchema, StatsSchema, TaskSchema, _type
from headway.api.schemas.workers import WorkerSchema
from tests.support.service import Site, running, shop
from tests.support.wire import fits

# Given their parts by a test: a checker would look for what is not there.
LIST: Any = list
OPTIONAL: Any = typing.Optional
CALLABLE: Any = Callable
ANNOTATED: Any = Annotated
ABSENT = {"a": LIST["Fog"], "b": OPTIONAL["Fog"], "c": CALLABLE[["Fog"], int]}


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Iterator[Site]:
    app = shop(database_url, artifacts=str(tmp_path / "artifacts"))
    source = tmp_path / "page.html"

    @app.task("writes", timeout="5m", resources=["ollama"], retry=1)
    async def writes(ctx: Context, names: list[str], *, lines: int = 0) -> None:
        """Leave files behind.

        And say so.
        """
        for name in names:
            source.write_text(f"<script>{name}</script>")
            ctx.attach(source, name)
        for n in range(lines):
            ctx.log.info("line %s", n)

    with app, running(app) as found:
        yield found


def run(site: Site, **params: object) -> int:
    made = site.http.post("/api/jobs", json={"task": "writes", "params": params})
    assert made.status_code == 201, made.text
    site.drain()
    job = site.http.get(f"/api/jobs/{made.json()['job_id']}").json()
    assert job["status"] == "COMPLETED", job
    return int(job["job_id"])


def test_what_a_param_is_said_to_be_is_what_a_person_would_write() -> None:
    words = {
        "int": Annotated[int, "at least 1"],
        "list[str]": list[Annotated[str, "a name"]],
        "dict[str, int] | None": dict[str, Annotated[int, "n"]] | None,
        "Fog": "Fog",
        "None": None,
        "list['Fog']": ABSENT["a"],
        "Optional['Fog']": ABSENT["b"],
        "collections.abc.Callable[['Fog'], int]": ABSENT["c"],
        "collections.abc.Callable[[int], 'Sea']": CALLABLE[[ANNOTATED[int, "n"]], "Sea"],
        "Optional[list['Sea']]": OPTIONAL[LIST[ANNOTATED["Sea", "wide"]]],
    }
    assert {_type(one) for one in words.values()} == set(words)
    assert _type(inspect.Parameter.empty) is None


def test_tasks_say_what_they_take_and_when_they_were_seen(site: Site) -> None:
    before = {one["task"]: one for one in site.http.get("/api/tasks").json()["items"]}
    assert before["story.generate"]["seen_at"] is None
    run(site, names=[])
    listed = fits(PageSchema[TaskSchema], site.http.get("/api/tasks"))
    tasks = {one["task"]: one for one in listed["items"]}
    one = tasks["writes"]
    assert one["seen_at"] is not None
    assert (one["description"], one["timeout"], one["resources"]) == ("Leave files behind.", 300.0, ["ollama"])
    assert one["params"] == [
        {"name": "names", "type": "list[str]", "required": True, "default": None},
        {"name": "lines", "type": "int", "required": False, "default": 0},
    ]
    assert one["retry_policy"]["max_attempts"] == 1
    assert (tasks["story.generate"]["direct"], tasks["story.generate"]["admin_only"]) == ("/story/generate", False)
    assert tasks["command"]["admin_only"] is True


def test_a_param_of_a_type_that_is_nowhere_is_shown_as_it_is_written(database_url: str) -> None:
    app = shop(database_url)

    async def takes(a: object, b: object, c: object) -> None: ...

    takes.__annotations__ = dict(ABSENT)
    app.task("takes")(takes)
    with app, running(app) as site:
        (one,) = (one for one in site.http.get("/api/tasks").json()["items"] if one["task"] == "takes")
        assert [param["type"] for param in one["params"]][:2] == ["list['Fog']", "Optional['Fog']"]
        app.client.templates.create("fog", "takes")
        for path in ("jobs/new", "templates/new", "templates/1", "templates/1/edit", "schedules/new"):
            assert site.http.get(f"/ui/{path}").status_code == 200, path


def test_workers_and_figures(site: Site) -> None:
    assert site.http.get("/api/stats").json()["waits"]["count"] == 0
    run(site, names=[])
    (worker,) = fits(PageSchema[WorkerSchema], site.http.get("/api/workers"))["items"]
    assert (worker["running"], worker["state"]) == ([], "gone")
    assert "writes" in worker["tasks"]
    stats = fits(StatsSchema, site.http.get("/api/stats"))
    assert (stats["counts"]["COMPLETED"], stats["counts"]["QUEUED"], stats["oldest_wait"]) == (1, 0, None)
    # Of five minutes each: the newest may have begun since.
    assert sum(one["completed"] for one in stats["throughput"][-2:]) == 1
    assert (stats["waits"]["count"], stats["durations"]["count"]) == (1, 1)


def test_a_log_is_read_in_pages_and_from_its_end(site: Site) -> None:
    job_id = run(site, names=[], lines=7)
    path = f"/api/jobs/{job_id}/logs"
    whole = fits(LogSchema, site.http.get(path))
    assert [one["message"] for one in whole["items"]] == [f"line {n}" for n in range(7)]
    assert whole["next"] is None
    seen: list[str] = []
    after = 0
    while True:
        page = site.http.get(path, params={"after": after, "limit": 1}).json()
        seen += [one["message"] for one in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [f"line {n}" for n in range(7)]
    assert page["position"] == whole["position"]
    assert [one["message"] for one in site.http.get(path, params={"tail": 2}).json()["items"]] == ["line 5", "line 6"]
    assert site.http.get(path, params={"tail": 2, "after": 3}).status_code == 422
    assert site.http.get("/api/jobs/999/logs").status_code == 404


def test_files_are_sent_as_they_are_and_never_as_a_page(site: Site) -> None:
    names = ["page.html", "a/b c.txt", 'quote".md', "größe.txt"]
    job_id = run(site, names=names)
    path = f"/api/jobs/{job_id}/artifacts"
    found = fits(PageSchema[ArtifactSchema], site.http.get(path))
    listed = {one["name"]: one for one in found["items"]}
    assert sorted(listed) == sorted(names)
    for name in names:
        got = site.http.get(f"{path}/{quote(name, safe='')}")
        assert (got.status_code, got.text) == (200, f"<script>{name}</script>")
        assert len(got.content) == listed[name]["size"]
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["content-disposition"].startswith("attachment")
        assert got.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in got.headers["content-security-policy"]
        assert got.headers["etag"] == f'"{listed[name]["sha256"]}"'
    assert site.http.get(f"{path}/../../etc/passwd").status_code == 404
    for wrong in ("nothing.txt", "..%2F..%2Fheadway.db", "%00"):
        assert site.http.get(f"{path}/{wrong}").status_code == 404, wrong
    digest = listed["page.html"]["sha256"]
    (site.app.settings.artifacts / digest[:2] / digest).unlink()
    gone = site.http.get(f"{path}/page.html")
    assert (gone.status_code, gone.json()["code"]) == (410, "gone")
    other = site.http.post("/api/jobs", json={"task": "writes", "params": {"names": []}}).json()["job_id"]
    assert site.http.get(f"/api/jobs/{other}/artifacts/page.html").status_code == 404
