"""Commands on a server: the same words, the same JSON and the same exit codes as on the database itself."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headway import Context
from headway.cli.backend.base import Backend
from headway.cli.backend.connection import Link, clock_ahead
from headway.cli.backend.http import HttpBackend
from headway.cli.backend.http_errors import error_of
from headway.cli.backend.local import LocalBackend
from headway.cli.backend.server_option import ServerAddress
from headway.cli.command import SHARED
from headway.cli.main import hint_of
from headway.clock import SECOND
from headway.model.jobs.filter import JobFilter
from headway.model.jobs.states import State
from headway.testing import drain, isolated
from tests.support import service, shop
from tests.support.cli import Answer, Here, until
from tests.support.deadlines import join
from tests.support.receivers import Receiver
from tests.support.service import Site, running
from tests.support.wiretap import tapped

_SPAN = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|[smhd])\b")
TRUE = {"task": "command", "params": {"argv": ["true"]}}
ARGV = json.dumps(TRUE["params"])
# What goes on while one looks twice.
_MOVING = ("beat_at", "lease_expires_at", "at", "finished_since", "start_estimate", "database", "server")


@pytest.fixture(autouse=True)
def wide(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cut: `9s` and `10s` would leave another rest of a line."""
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def site(cli: Here) -> Iterator[Site]:
    assert cli.database is not None
    with isolated(shop.app, cli.database) as app:
        app.configure(None, {"artifacts": str(cli.folder / "artifacts"), "port": 0, "resources": {"ollama": 1}})
        with running(app) as served:
            yield served


class There:
    """The same commands, on the server."""

    def __init__(self, here: Here, url: str, *options: str) -> None:
        self.here = Here(None, here.folder, here.capsys)
        self.options = ("--server", url, *options)

    def __call__(self, *args: object) -> Answer:
        cut = args.index("--") if "--" in args else len(args)
        return self.here(*args[:cut], *self.options, *args[cut:])


@pytest.fixture
def there(cli: Here, site: Site) -> There:
    return There(cli, site.url)


def words(answer: Answer) -> tuple[int, str, str]:
    """What people read, whatever time it is."""
    return answer.code, *(re.sub(r" +", " ", _SPAN.sub("T", text)) for text in (answer.out, answer.err))  # type: ignore[return-value]


def still(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: still(one) for name, one in value.items() if name not in _MOVING}
    return [still(one) for one in value] if isinstance(value, list) else value


def same(here: Here, there: There, *args: object) -> None:
    local, remote = here(*args), there(*args)
    assert words(remote) == words(local), args
    local, remote = here(*args, "--json"), there(*args, "--json")
    assert (remote.code, remote.err) == (local.code, local.err), args
    if args[1:2] == ("logs",):
        assert remote.records == local.records
    else:
        assert still(remote.data) == still(local.data), args


def stock(site: Site) -> None:
    """One of everything: jobs 1 to 5 have ended or are held, others wait."""
    app, client = site.app, site.app.client
    app.enqueue("shop.greet", {"name": "Ada", "times": 3})
    app.enqueue("shop.give_up")
    app.enqueue("shop.skip")
    app.enqueue("shop.give_up", target="desk/1", on_error="hold")
    app.enqueue("shop.fail", {"error": "no luck"}, key="fail:1")
    greet, give_up = app.tasks["shop.greet"], app.tasks["shop.give_up"]
    app.plan("nightly").then(greet.step(name="a"), give_up.step()).then(greet.step(name="b")).start()
    client.templates.create("fog", "shop.greet", params={"name": "fog"}, priority=5, description="about fog")
    steps = [{"task": "shop.greet", "params": {"name": "x"}}, {"template": "fog", "index": 0, "name": "second"}]
    client.schedules.create("each hour", {"interval": "1h", "steps": steps, "timezone": "Europe/Berlin"})
    client.schedules.create("by template", {"cron": "30 2 * * mon-fri", "template": "fog"}, enabled=False)
    client.schedules.run("each hour")
    site.drain()
    app.enqueue("shop.greet", {"name": "waits"}, target="desk/1", priority=7)
    app.enqueue("shop.wait", {"seconds": 1}, resources=["ollama"], delay="2h", budget={"tokens": 5})
    app.enqueue("shop.greet", {"name": "on hold"}, hold=True)
    client.schedules.run("each hour", True)
    client.pause_queue(note="lunch")


def test_looking_says_the_same(cli: Here, site: Site, there: There) -> None:
    stock(site)
    for args in (
        ("jobs", "ls"),
        ("jobs", "ls", "--exhausted"),
        ("jobs", "chain", 5),
        ("jobs", "ls", "--status", "failed", "--since", "1h"),
        ("jobs", "ls", "--target", "desk/1", "--limit", 1),
        ("jobs", "ls", "--schedule", "each hour"),
        *(("jobs", "show", number) for number in (1, 2, 4, 5, 6, 7)),
        ("jobs", "logs", 1),
        ("jobs", "logs", 1, "--tail", 1),
        ("jobs", "logs", 1, "--tail", 0),
        ("jobs", "logs", 2),
        ("jobs", "explain", 4),
        ("jobs", "explain", 15),
        ("jobs", "wait", 1, 2),
        ("runs", "ls"),
        ("runs", "ls", "--status", "failed"),
        ("runs", "show", 1),
        ("runs", "show", 2),
        ("queue", "ls"),
        ("targets", "ls"),
        ("targets", "ls", "--state", "held"),
        ("targets", "show", "desk/1"),
        ("groups", "ls"),
        ("groups", "show", 1),
        ("executions", "ls"),
        ("executions", "ls", "--schedule", "each hour", "--status", "in_progress"),
        ("executions", "show", 2),
        ("schedules", "ls"),
        ("schedules", "show", "each hour"),
        ("schedules", "show", "by template"),
        ("schedules", "next", "by template", "--count", 3),
        ("schedules", "ticks", "each hour"),
        ("templates", "ls"),
        ("templates", "show", "fog"),
        ("limits", "ls"),
        ("stats",),
        ("tenants", "show", "default"),
        ("jobs", "artifacts", 1),
        ("workers", "ls"),
        ("tokens", "ls"),
        ("webhooks", "ls"),
    ):
        same(cli, there, *args)
    local, remote = cli("status"), there("status")
    assert site.url in remote.out.splitlines()[0]
    parts = [answer.out.partition("\nqueue")[2] for answer in (local, remote)]
    assert _SPAN.sub("T", parts[0]) == _SPAN.sub("T", parts[1]) != ""
    assert still(there("top", "--json").data) == still(cli("top", "--json").data)


def test_missing_things_are_refused_in_the_same_words(cli: Here, site: Site, there: There) -> None:
    stock(site)
    for args in (
        ("jobs", "show", 99),
        ("jobs", "logs", 99),
        ("jobs", "explain", 99),
        ("jobs", "cancel", 99),
        ("runs", "show", 99),
        ("groups", "show", 99),
        ("executions", "show", 99),
        ("schedules", "show", "each day"),
        ("schedules", "next", "99"),
        ("templates", "show", "frog"),
        ("targets", "show", "desk-9"),
        ("jobs", "ls", "--target", "desk-9"),
        ("limits", "set", "nothing", 3),
        ("webhooks", "show", 99),
    ):
        local, remote = cli(*args), there(*args)
        assert (remote.code, remote.err) == (local.code, local.err), args
        assert remote.code == 3, args
    held = cli("jobs", "ls", "--status", "waiting", "--json").data["items"][-1]
    refusals: tuple[tuple[int, tuple[object, ...]], ...] = (
        (2, ("jobs", "ls", "--limit", 1000)),
        (2, ("jobs", "ls", "--cursor", "zzz")),
        (2, ("jobs", "ls", "--status", "lost")),
        (2, ("jobs", "retry")),
        (4, ("jobs", "resume", 1)),
        (4, ("jobs", "move", 1, "--to", "top")),
        (4, ("jobs", "wait", held["job_id"], "--timeout", "0s")),
        (4, ("targets", "resume", "desk/1")),
        (4, ("schedules", "run", "each hour")),
        (4, ("jobs", "edit", 1, "name=Eve")),
    )
    for code, wrong in refusals:
        local, remote = cli(*wrong), there(*wrong)
        assert (remote.code, remote.err) == (local.code, local.err), wrong
        assert remote.code == code, wrong


def test_doing(cli: Here, site: Site, there: There) -> None:
    """Every verb, and that it was done where the database is."""
    assert there("run", "shop.greet", "name=Ada", "times=2", "--priority", 3, "--retries", 2).done().out == "1\n"
    made = there("run", "shop.greet", "name=Eve", "--hold", "--key", "k", "--target", "desk-1", "--json").done().data
    shown = cli("jobs", "show", 2, "--json").data
    assert made == {name: shown[name] for name in made}
    again = there("run", "shop.greet", "name=Eve", "--key", "k").done()
    assert (again.out, "job 2 has this key" in again.err) == ("2\n", True)
    shell = there("sh", "--hold", "--", "echo", "hello").done().out.strip()
    job = cli("jobs", "show", 1, "--json").data
    assert (job["priority"], job["retries_remaining"], job["params"]) == (3, 2, {"name": "Ada", "times": 2})

    assert there("jobs", "edit", 2, "times=4", "--priority", 9).done().out == "job 2 changed: now WAITING\n"
    assert cli("jobs", "show", 2, "--json").data["params"] == {"name": "Eve", "times": 4}
    assert "resumed: now QUEUED" in there("jobs", "resume", 2).done().out
    there("jobs", "move", 1, "--to", "front").done()
    there("jobs", "cancel", shell).done()
    assert cli("jobs", "show", shell, "--json").data["status"] == "CANCELLED"

    there("queue", "pause", "--note", "lunch", "--for", "2h").done()
    assert cli("status", "--json").data["queue"]["note"] == "lunch"
    assert "the queue is open" in there("queue", "resume").done().out
    there("targets", "pause", "desk-1", "--note", "dust").done()
    assert cli("targets", "show", "desk-1", "--json").data["note"] == "dust"
    there("targets", "resume", "desk-1").done()
    assert there("limits", "set", "global", 3, "--json").done().data["limit"] == 3
    assert "aging is now one priority for every 1h" in there("limits", "aging", "1h").done().out
    assert cli("limits", "ls", "--json").data["aging"] == 3600.0
    assert "aging is now off" in cli("limits", "aging", "none").done().out
    for wrong, words in (("0", "more than 0"), ("soon", "is not a duration")):
        there("limits", "aging", wrong).refused(2, words)
        cli("limits", "aging", wrong).refused(2, words)

    place = site.app.client.reserve().id
    same(cli, there, "reservations", "ls", "--status", "active")
    same(cli, there, "reservations", "show", place)
    assert there("reservations", "release", place, "--json").done().data["status"] == "RELEASED"
    for said in (there("reservations", "release", place), cli("reservations", "release", place)):
        said.refused(4, "already RELEASED")

    fog = there("templates", "create", "fog", "--task", "shop.greet", "name=fog", "--json").done().data
    shown = cli("templates", "show", "fog", "--json").data
    assert fog == {name: shown[name] for name in fog}
    there("templates", "edit", "fog", "times=2", "--description", "about fog").done()
    assert cli("templates", "show", "fog", "--json").data["params"] == {"name": "fog", "times": 2}
    number = there("templates", "run", "fog", "--retries", 1).done().out.strip()
    assert cli("jobs", "show", number, "--json").data["template_id"] == fog["template_id"]
    there("schedules", "create", "hourly", "--interval", "1h", "--template", "fog").done()
    assert cli("schedules", "show", "hourly", "--json").data["template"] == "fog"
    assert there("schedules", "run", "hourly", "--json").done().data["execution_id"] == 1
    there("schedules", "disable", "hourly").done()
    there("schedules", "enable", "hourly").done()
    backfill = ("schedules", "backfill", "hourly", "--since", "3h", "--json")
    local = cli(*backfill, "--dry-run", "--app", SHOP).done()
    assert there(*backfill, "--dry-run").done().data == local.data
    assert there(*backfill).done().data["executions"] == [2]
    for execution in (1, 2):
        there("executions", "cancel", execution).done()
    assert there("executions", "retry", 1).done().out == "3\n"
    there("schedules", "delete", "hourly", "--yes").done()
    there("templates", "archive", "fog").done()
    assert cli("schedules", "ls", "--json").data["items"] == []


def test_verbs_that_take_a_body_or_a_name(cli: Here, site: Site, there: There) -> None:
    (cli.folder / "batch.json").write_text(json.dumps({"jobs": [TRUE] * 2}))
    members = [{**TRUE, "stage": n} for n in (0, 1)]
    (cli.folder / "group.json").write_text(json.dumps({"name": "pair", "mode": "staged", "jobs": members}))
    both: tuple[Callable[..., Answer], ...] = (cli, there)
    for on in both:
        ids = [int(line) for line in on("jobs", "batch", "batch.json").done().out.split()]
        assert len(ids) == 2
        assert sorted(on("queue", "reorder", ids[1], ids[0], "--json").done().data["moved"]) == ids
        made = on("groups", "create", "group.json", "--json").done().data
        assert (made["name"], made["mode"], made["stages"]) == ("pair", "staged", 2)
        on("schedules", "create", "each", "--interval", "1h", "--task", "command", "--params", ARGV).done()
        edited = on("schedules", "edit", "each", "--cron", "0 3 * * *", "--note", "later", "--json").done().data
        assert (edited["cron"], edited["interval"], edited["note"]) == ("0 3 * * *", None, "later")
        assert on("schedules", "edit", "each", "--note", "none", "--json").done().data["note"] is None
        on("schedules", "delete", "each", "--yes").done()
        job = on("run", "command", "--params", ARGV, "--webhook-url", "https://example.org/x", "--json").done().data
        assert job["status"] == "QUEUED"
        assert "no change given" in on("schedules", "edit", "each").err
        assert "cannot be read" in on("jobs", "batch", "missing.json").err
    refused = [on("groups", "create", "batch.json") for on in (cli, there)]
    assert [answer.code for answer in refused] == [0, 0]
    (cli.folder / "bad.json").write_text('{"jobs": [{"colour": 1}]}')
    assert [on("jobs", "batch", "bad.json").code for on in (cli, there)] == [2, 2]
    names = {task["task"] for task in there("tasks", "ls", "--json").done().data["items"]}
    assert {"shop.greet", "command"} <= names
    there_called = there("call", "shop.greet", "name=Ada").done().data
    # The app of this process is the server's own here, and ends with the command.
    assert cli("call", "shop.greet", "name=Ada", "--app", "tests.support.shop:app").done().data == there_called


def test_files_are_listed_and_downloaded_but_never_overwritten(cli: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.database is not None
    files = cli.folder / "files"
    monkeypatch.setenv("HEADWAY_ARTIFACTS", str(files))
    app = service.shop(cli.database, artifacts=str(files))

    @app.task("attaches")
    async def attaches(ctx: Context) -> None:
        (cli.folder / "story.md").write_text("Fog")
        ctx.attach(cli.folder / "story.md")

    with app, running(app) as site:
        app.enqueue("attaches")
        site.drain()
        both: tuple[Callable[..., Answer], ...] = (cli, There(cli, site.url))
        for n, on in enumerate(both):
            (found,) = on("jobs", "artifacts", 1, "--json").done().data["items"]
            assert (found["name"], found["size"]) == ("story.md", 3)
            place = cli.folder / f"fog{n}.md"
            assert on("jobs", "artifacts", 1, "story.md", "--to", place).done().out.strip() == str(place)
            assert place.read_text() == "Fog"
            refused = on("jobs", "artifacts", 1, "story.md", "--to", place)
            assert (refused.code, "exists already" in refused.err) == (2, True)
            assert on("jobs", "artifacts", 1, "nothing.md").code == 3


def test_many_by_filter_and_a_target_that_is_let_go(cli: Here, site: Site, there: There) -> None:
    stock(site)
    site.app.client.resume_queue()
    assert there("targets", "release", "desk/1").done().out.splitlines()[0] == "job 4 released: now FAILED"
    there("targets", "release", "desk/1").refused(4, "nothing to release")
    there("jobs", "retry", "--task", "shop.give_up").refused(2, "retry 3 jobs", "--yes")
    done = there("jobs", "retry", "--task", "shop.give_up", "--yes", "--json").done().data
    assert len(done["items"]) == 3
    assert "no job matches" in there("jobs", "retry", "--task", "shop.give_up", "--yes").done().err


# --- watching -----------------------------------------------------------------------------------------------------


@contextmanager
def working(site: Site) -> Iterator[None]:
    """Somebody who runs what comes, until the end."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.05):
            drain(site.app)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        join(thread)


def test_following(cli: Here, site: Site, there: There) -> None:
    with working(site):
        told = there("run", "shop.greet", "name=Ada", "times=2", "--follow")
        assert told.code == 0, told
        assert [line[9:] for line in told.out.splitlines()[:2]] == ["hello Ada, 0", "hello Ada, 1"]
        assert json.loads("\n".join(told.out.splitlines()[2:])) == {"greeted": "Ada", "times": 2}
        assert "job 1 COMPLETED" in told.err
        told = there("run", "shop.fail", "--follow")
        assert told.code == 1
        # How soon is told by two clocks and a network between them: seconds, on a busy machine.
        assert re.search(r"job 2 failed: RuntimeError: no luck; retry in \d+s as job 3", told.err)
        assert "job 3 FAILED" in told.err
        assert told.out.count("about to fail") == 2
        waited = there("jobs", "wait", 2, "--json")
        assert (waited.code, [one["job_id"] for one in waited.data["items"]]) == (1, [3])
        assert there("jobs", "logs", "-f", 1).out.count("hello Ada") == 2


def test_a_broken_line_is_taken_up_where_it_broke(cli: Here, site: Site) -> None:
    """The first lines come, the line breaks, the job goes on and ends: nothing is missing and nothing comes twice."""
    client, database = site.app.client, site.app.database
    job_id = site.app.enqueue("shop.greet", {"name": "Ada", "times": 1}).id

    def log(n: int) -> None:
        text = json.dumps([[n * 1_000_000, "INFO", f"line {n}"]])
        script = f"insert into hw_log (job_id, at, lines) values ({job_id}, {n}, '{text}');"
        database.transact("log", lambda tx: database.execute_script(tx, script))

    log(1)
    with tapped(site.url) as line:
        there = There(cli, line.url)
        answers: list[Answer] = []

        def trouble() -> None:
            until(lambda: line.streams == 1, "somebody who follows")
            log(2)
            line.cut()
            log(3)
            until(lambda: line.streams == 2, "somebody who comes again")
            client.cancel(job_id)

        thread = threading.Thread(target=trouble)
        thread.start()
        answers.append(there("jobs", "logs", "-f", job_id))
        join(thread)
    assert answers[0].code == 0, answers
    assert [text[9:] for text in answers[0].out.splitlines()] == ["line 1", "line 2", "line 3"]


def test_an_answer_that_is_lost_makes_no_second_job(cli: Here, site: Site) -> None:
    with tapped(site.url) as line:
        line.lose = 1
        made = There(cli, line.url)("run", "shop.greet", "name=Ada", "--json").done()
    assert made.data["job_id"] == 1
    assert [job["job_id"] for job in cli("jobs", "ls", "--json").data["items"]] == [1]


def test_both_backends_answer_the_same_bytes(site: Site) -> None:
    """Field by field and in the same order, for what the commands are not asked with everything set."""
    stock(site)
    client = site.app.client
    client.pause_queue(everybody=True, note="power")
    hook = client.webhooks.create("https://example.com/hook", ["job.*"], description="mine")
    client.tenants.create("acme", max_running=2)
    client.tokens.create("ci", "operator", tenant="acme", expires="90d")
    delivery = client.webhooks.test(hook.id).id
    token = client.tokens.create("root", "admin", tenant=None)[1]
    link = Link(ServerAddress(site.url, token), print)
    local, remote = LocalBackend(site.app.settings, lambda: client), HttpBackend(link)
    reads: list[Callable[[Backend], Any]] = [
        lambda backend: backend.jobs.page(JobFilter(), 200, None),
        lambda backend: backend.jobs.page(JobFilter(target="desk/1"), 1, None),
        lambda backend: backend.jobs.runs(JobFilter(statuses=frozenset({State.FAILED})), 2, None),
        lambda backend: backend.jobs.numbers(JobFilter(task="shop.give_up"), unretried=True),
        *(partial(lambda number, backend: backend.jobs.shown(number), number) for number in range(1, 16)),
        lambda backend: backend.jobs.run(5),
        lambda backend: backend.jobs.explain(4),
        lambda backend: backend.jobs.log(1, None),
        lambda backend: backend.queue.page(20),
        lambda backend: backend.queue.limits(),
        lambda backend: backend.targets.page((), 1, None),
        lambda backend: backend.targets.shown("desk/1"),
        lambda backend: backend.overview(),
        lambda backend: backend.workers(),
        lambda backend: backend.groups.page(50, None, status=None),
        lambda backend: backend.groups.get(1),
        lambda backend: backend.groups.shown(1),
        lambda backend: backend.executions.page(1, None, status="COMPLETED"),
        lambda backend: backend.executions.page(50, None, status=None, schedule_id=1),
        lambda backend: backend.executions.shown(2),
        lambda backend: backend.schedules.page(1, None),
        lambda backend: backend.schedules.get(1),
        lambda backend: backend.schedules.shown("each hour"),
        lambda backend: backend.schedules.shown("by template"),
        lambda backend: backend.schedules.next_times("by template", 3),
        lambda backend: backend.schedules.ticks("each hour", 5, None),
        lambda backend: backend.templates.page(50, None, archived=True),
        lambda backend: backend.templates.shown("fog"),
        lambda backend: backend.tokens.page(1, None),
        lambda backend: backend.tenants.page(1),
        lambda backend: backend.webhooks.page(50, None),
        lambda backend: backend.webhooks.shown(hook.id),
        lambda backend: backend.webhooks.deliveries(50, None, webhook=hook.id, job=None, status=None),
        lambda backend: backend.webhooks.tries(delivery),
    ]
    with closing(link):
        for number, read in enumerate(reads):
            here, there = json.dumps(still(read(local))), json.dumps(still(read(remote)))
            assert there == here, number


# --- webhooks, tokens, files --------------------------------------------------------------------------------------


def test_webhooks_and_files(cli: Here, site: Site, there: There) -> None:
    made = there("webhooks", "create", "https://example.com/hook", "--event", "job.*", "--json").done().data
    assert made["secret"].startswith("whsec_")
    there("webhooks", "edit", 1, "--description", "mine").done()
    delivery = site.app.client.webhooks.test(1)
    for args in (("webhooks", "ls"), ("webhooks", "show", 1), ("webhooks", "deliveries", 1)):
        same(cli, there, *args)
    same(cli, there, "webhooks", "tries", delivery.id)
    assert there("webhooks", "secret").out == cli("webhooks", "secret").out
    assert "has a new secret" in there("webhooks", "rotate", 1).done().out
    there("webhooks", "delete", 1).done()

    file = cli.folder / "plan.toml"
    file.write_text(
        '[[schedules]]\nname = "nightly"\ncron = "30 2 * * *"\n'
        'steps = [{ task = "shop.greet", params = { name = "a" } }]\n'
    )
    assert (
        there("apply", file, "--dry-run", "--json").done().data
        == cli("apply", file, "--dry-run", "--app", SHOP, "--json").data
    )
    assert "+ schedule nightly" in there("apply", file).done().out
    assert cli("schedules", "show", "nightly", "--json").data["origin"] == "file"
    assert "no changes" in there("apply", file).done().err
    file.write_text("[[schedules]]\nname = 'nightly'\ncron = 1\n")
    assert there("apply", file).code == 2
    crontab = cli.folder / "crontab"
    crontab.write_text("5 4 * * * echo hello\n")
    assert "1 schedule created" in there("schedules", "import", crontab).done().err


SHOP = "tests.support.shop:app"


def test_tokens_and_roles(cli: Here, site: Site, there: There, monkeypatch: pytest.MonkeyPatch) -> None:
    first = there("tokens", "create", "root", "--role", "admin", "--system").done().out.strip()
    until(lambda: there("jobs", "ls").code == 4, "a server that asks for a token")
    there("jobs", "ls").refused(4, "--token-file")
    There(cli, site.url, "--token", "hw_wrong")("jobs", "ls").refused(4, "unknown, revoked or expired", "--token-file")
    root = There(cli, site.url, "--token", first)
    viewer = root("tokens", "create", "eve", "--role", "viewer", "--json").done().data["token"]
    same(cli, root, "tokens", "ls")
    eyes = There(cli, site.url, "--token", viewer)
    eyes("jobs", "ls").done()
    eyes("run", "shop.greet", "name=Ada").refused(4, "needs the role operator")
    assert eyes("jobs", "ls", "--json").done().data["items"] == []

    monkeypatch.setenv("HEADWAY_SERVER", site.url)
    monkeypatch.setenv("HEADWAY_TOKEN", viewer)
    bare = Here(None, cli.folder, cli.capsys)
    bare("jobs", "ls").done()
    bare("verify").refused(2, "needs the database itself", "HEADWAY_SERVER")
    cli("verify").done()  # a database that is named counts more
    root("tokens", "revoke", 2).done()
    bare("jobs", "ls").refused(4, "revoked")


# --- who and where ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "took", "ahead"),
    [
        (100, 0, 0),
        (96, 0, 0),  # a Date is a little old
        (100, 30, 0),  # an answer that took long is no other clock
        (128, 30, 0),
        (40, 0, -60),
        (40, 30, -60),
        (190, 30, 60),
    ],
)
def test_a_slow_answer_is_no_other_clock(there: int, took: int, ahead: int) -> None:
    assert clock_ahead(there * SECOND, 100 * SECOND, (100 + took) * SECOND) == ahead * SECOND


def test_a_token_file_is_its_owners_alone(here: Here, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli.backend.server_option import ServerOptions, find_token

    monkeypatch.setenv("HOME", str(folder))
    usual = folder / ".config" / "headway" / "token"
    assert find_token(ServerOptions(), {}) is None
    usual.parent.mkdir(parents=True)
    usual.write_text("hw_usual\n")
    for mode in (0o644, 0o640, 0o604, 0o700, 0o660):
        usual.chmod(mode)
        here("jobs", "ls", "--server", "http://127.0.0.1:1").refused(4, f"{mode:04o}", "chmod 600", str(usual))
    for mode in (0o600, 0o400):
        usual.chmod(mode)
        assert find_token(ServerOptions(), {}) == "hw_usual"
    own = folder / "own"
    own.write_text("hw_own")
    own.chmod(0o600)
    assert find_token(ServerOptions(token_file=own), {"HEADWAY_TOKEN": "hw_env"}) == "hw_own"
    assert find_token(ServerOptions(token="hw_said", token_file=own), {"HEADWAY_TOKEN": "hw_env"}) == "hw_said"
    assert find_token(ServerOptions(), {"HEADWAY_TOKEN": "hw_env"}) == "hw_env"
    own.write_text("")
    here("jobs", "ls", "--server", "http://127.0.0.1:1", "--token-file", own).refused(2, "does not hold a token")
    here("jobs", "ls", "--server", "http://127.0.0.1:1", "--token-file", "nowhere").refused(2, "cannot be read")
    here("jobs", "ls", "--server", "http://127.0.0.1:1", "--token-file", folder).refused(2, "cannot be read")


def test_mistakes_in_an_address(here: Here, cli: Here) -> None:
    for url in ("127.0.0.1:8642", "ftp://x", "http://", "http://[", "http://x:port", "", "http://x:99999"):
        here("jobs", "ls", "--server", url).refused(2, "--server must be an address")
    here("jobs", "ls", "--server", "http://me:secret@x").refused(2, "without user, query or fragment")
    here("jobs", "ls", "--token", "hw_x").refused(2, "--server")
    cli("jobs", "ls", "--server", "http://127.0.0.1:1").refused(2, "exclude each other")
    here("run", "shop.greet", "--app", SHOP, "--server", "http://127.0.0.1:1").refused(2, "--app")


def test_a_server_that_is_not_there_or_is_none(here: Here, scratch: Path) -> None:
    for args in (("jobs", "ls"), ("status",), ("run", "x"), ("jobs", "logs", "-f", 1), ("jobs", "wait", 1)):
        here(*args, "--server", "http://127.0.0.1:1").refused(5, "http://127.0.0.1:1 cannot be reached")
    other = Receiver()
    try:
        here("jobs", "ls", "--server", f"http://127.0.0.1:{other.port}").refused(5, "does not answer like a Headway")
    finally:
        other.close()


LOCAL = (
    ("up",),
    ("work", "--burst"),
    ("dev", SHOP),
    ("verify",),
    ("config", "show"),
    ("config", "check"),
    ("db", "migrate"),
    ("db", "check"),
    ("db", "backup", "x.db"),
    ("hold", "ollama", "--", "true"),
)


@pytest.mark.parametrize("args", LOCAL, ids=" ".join)
def test_what_works_on_this_machine_only_refuses_a_server(here: Here, args: tuple[str, ...]) -> None:
    cut = args.index("--") if "--" in args else len(args)
    here(*args[:cut], "--server", "http://127.0.0.1:1", *args[cut:]).refused(2, "needs the database itself")


def test_local_commands_do_not_load_what_speaks_http() -> None:
    """Nobody waits for it who does not need it."""
    import subprocess
    import sys

    script = (
        "import sys; from headway.cli.main import main; main(['jobs', 'ls', '--database', 'no.db']);"
        " names = ('httpx', 'fastapi', 'starlette', 'headway.cli.backend.http');"
        " print([name for name in names if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]", ended
    assert {"server", "token", "token_file"} < SHARED.keys()


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/api/jobs/7", "jobs ls"),
        ("/api/job-groups/7/retry", "groups ls"),
        ("/api/schedule-executions/7", "executions ls"),
        ("/base/api/webhooks/7", "webhooks ls"),
        ("/api/deliveries/7", "webhooks deliveries WEBHOOK"),
    ],
)
def test_a_missing_number_comes_with_the_command_that_lists_its_kind(path: str, command: str) -> None:
    error = error_of("http://here", path, 404, {"code": "not_found", "detail": "there is no such number"})
    assert hint_of(error) == f": see `headway {command}`"


def test_for_a_missing_name_the_remedy_is_the_servers() -> None:
    detail = "there is no schedule 'nightli': did you mean nightly?"
    error = error_of("http://here", "/api/schedules/nightli", 404, {"code": "unknown_schedule", "detail": detail})
    assert (str(error), hint_of(error)) == (detail, "")
