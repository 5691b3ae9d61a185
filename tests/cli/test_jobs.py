"""Making jobs and looking at them: run, sh, jobs ls, show, logs, explain, wait, runs; for people and as JSON."""

from __future__ import annotations

import re

from headway.app import App
from headway.model.jobs.job import SYSTEM
from headway.store import workers
from headway.testing import drain
from tests.support.cli import Here

SHOP = ("--app", "tests.support.shop:app")
# The fields of **Job** and **Run** that the API promises.
JOB = {
    *("job_id", "task", "params", "status", "queue_status", "outcome", "priority", "position", "rank", "target"),
    *("resources", "template_id", "schedule_id", "execution_id", "group_id", "stage", "step", "retry_of"),
    *("attempt", "retries_remaining", "exhausted", "not_before", "key", "reason", "stop_requested", "created_at"),
    *(
        "queued_at",
        "started_at",
        "finished_at",
        "created_by",
        "progress",
        "meters",
        "budget",
        "expires_at",
        "failure_kind",
    ),
    *("lease_owner", "lease_expires_at", "version", "run"),
}
RUN = {
    *("run_id", "job_id", "task", "status", "params_snapshot", "started_at", "finished_at", "exit_code", "error"),
    *("failure_kind", "artifacts", "result"),
}


def test_run_makes_a_job(cli: Here) -> None:
    made = cli("run", "shop.greet", "name=Ada", "times=3", "--priority", 7, *SHOP).done()
    assert made.out == "1\n"
    assert "no worker is alive: start one with `headway work`" in made.err
    job = cli("jobs", "show", 1, "--json").done().data
    assert job["params"] == {"name": "Ada", "times": 3}
    assert (job["status"], job["priority"], job["rank"]) == ("QUEUED", 7, 1)
    assert job["created_by"]["type"] == "user"


def test_run_answers_with_the_job_as_json(cli: Here) -> None:
    job = cli("run", "shop.greet", "name=Ada", "--json", *SHOP).done().data
    assert job.keys() == JOB
    assert (job["status"], job["queue_status"], job["outcome"], job["run"]) == ("QUEUED", "QUEUED", None, None)
    assert job["created_at"].endswith("Z")


def test_values_are_json_where_they_are_json_and_text_otherwise(cli: Here) -> None:
    texts = ["a=1", "b=1.5", "c=true", "d=null", 'e=[1, "x"]', 'f="1"', "g=hello", "h=", "i=1.2.3", "j=[oops", "k=a=b"]
    params = cli("run", "command", "argv=[]", *texts, "--json")
    assert params.code == 2  # they are not params of the task; it is the values that count here
    job = cli("run", "shop.greet", 'name="1"', "times=2", "--json", *SHOP).done().data
    assert job["params"] == {"name": "1", "times": 2}


def test_params_from_json_and_from_a_file(cli: Here) -> None:
    (cli.folder / "params.json").write_text('{"name": "file", "times": 2}')
    given = cli("run", "shop.greet", "--params", '{"name": "json"}', "times=5", "--json", *SHOP).done().data
    assert given["params"] == {"name": "json", "times": 5}
    from_file = cli("run", "shop.greet", "--params", "@params.json", "--json", *SHOP).done().data
    assert from_file["params"] == {"name": "file", "times": 2}


def test_every_wish_arrives(cli: Here) -> None:
    wishes = ["--delay", "1h", "--key", "k", "--timeout", "5m", "--retries", 1, "--base-delay", "2s"]
    wishes += ["--budget", "tokens=500", "--on-lost", "hold", "--expires-at", "2099-01-01T00:00:00Z"]
    job = cli("run", "shop.greet", "name=x", *wishes, "--json", *SHOP).done().data
    assert (job["status"], job["key"], job["retries_remaining"]) == ("SCHEDULED", "k", 1)
    assert (job["budget"], job["expires_at"]) == ({"tokens": 500}, "2099-01-01T00:00:00Z")
    again = cli("run", "shop.greet", "name=y", "--key", "k", *SHOP).done()
    assert again.out == "1\n"
    assert "job 1 has this key" in again.err
    held = cli("run", "shop.greet", "name=x", "--hold", "--json", *SHOP).done().data
    assert held["status"] == "WAITING"


def test_sh_makes_a_command_job(cli: Here) -> None:
    job = cli("sh", "--json", "--cwd", "/tmp", "--", "ls", "-la", "--json").done().data
    assert (job["task"], job["params"]) == ("command", {"argv": ["ls", "-la", "--json"], "cwd": "/tmp"})
    shell = cli("sh", "--json", "--shell", "--", "echo hi | cat").done().data
    assert shell["params"] == {"argv": ["echo hi | cat"], "shell": True}


def test_ls_says_how_to_make_the_first_job(cli: Here) -> None:
    empty = cli("jobs", "ls").done()
    assert empty.out == ""
    assert "no jobs yet" in empty.err
    assert "headway run TASK" in empty.err
    assert cli("jobs", "ls", "--json").done().data == {"items": [], "next": None}
    assert "no job matches" in cli("jobs", "ls", "--status", "failed").done().err


def test_ls_for_people_fits_80_columns(cli: Here, app: App) -> None:
    app.enqueue("shop.fail", {"error": "x" * 300}, retry=0)
    app.enqueue("shop.greet", {"name": "Ada"})
    drain(app)
    lines = cli("jobs", "ls").done().out.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "TASK", "PRIO", "TRY", "AGE", "NOTE"]
    assert lines[1].split()[:3] == ["2", "COMPLETED", "shop.greet"]
    assert lines[2].split()[:3] == ["1", "FAILED", "shop.fail"]
    assert "RuntimeError: xxx" in lines[2]
    assert all(len(line) <= 80 for line in lines)


def test_ls_filters_and_pages(cli: Here, app: App) -> None:
    for n in range(7):
        app.enqueue("shop.greet", {"name": f"n{n}"}, key=f"k{n}")
    app.enqueue("shop.give_up")
    drain(app)
    waiting = app.enqueue("shop.skip", key="odd%_key")

    def ids(*filters: object) -> list[int]:
        return [job["job_id"] for job in cli("jobs", "ls", "--json", *filters).done().data["items"]]

    assert ids() == list(range(9, 0, -1))
    assert ids("--status", "FAILED") == [8]
    assert ids("--status", "failed,queued") == ids("--status", "FAILED", "--status", "QUEUED") == [9, 8]
    assert ids("--status", "success", "--limit", 2) == [7, 6]
    assert ids("--task", "shop.skip") == [waiting.id]
    assert ids("--key", "k3") == [4]
    assert ids("--failure-kind", "exception") == [8]
    assert ids("--search", "WILL HELP") == [8]
    assert ids("--search", "d%_K") == [9]
    assert ids("--search", "%") == [9]
    assert ids("--since", "1h", "--until", "2099-01-01") == list(range(9, 0, -1))
    assert ids("--until", "1h") == []
    assert ids("--created-by", app.client.actor.name) == list(range(9, 0, -1))
    assert ids("--created-by", "nobody-of-that-name") == []

    page = cli("jobs", "ls", "--json", "--limit", 4).done().data
    rest = cli("jobs", "ls", "--json", "--limit", 4, "--cursor", page["next"]).done().data
    last = cli("jobs", "ls", "--json", "--limit", 4, "--cursor", rest["next"]).done().data
    assert [job["job_id"] for job in page["items"] + rest["items"] + last["items"]] == list(range(9, 0, -1))
    assert last["next"] is None
    assert f"--cursor {page['next']}" in cli("jobs", "ls", "--limit", 4).done().err


def test_show(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "Ada", "times": 2})
    drain(app)
    page = cli("jobs", "show", 1).done().out
    assert "COMPLETED" in page
    assert '{"greeted":"Ada","times":2}' in page
    assert "job.claimed" in page
    job = cli("jobs", "show", 1, "--json").done().data
    assert job.keys() == JOB | {"events"}
    assert job["run"].keys() == RUN
    assert (job["outcome"], job["queue_status"]) == ("COMPLETED", None)
    assert job["run"]["result"] == {"greeted": "Ada", "times": 2}
    assert job["progress"] == {**job["progress"], "done": 2, "total": 2, "label": "greeting"}
    assert [event["kind"] for event in job["events"]] == ["job.created", "job.claimed", "job.completed"]
    assert [event["version"] for event in job["events"]] == [1, 2, 3]


def test_an_open_run_and_a_retry_chain_as_json(cli: Here, app: App) -> None:
    app.enqueue("shop.fail")
    drain(app)
    failed = cli("jobs", "show", 1, "--json").done().data
    assert (failed["status"], failed["failure_kind"], failed["retries_remaining"]) == ("FAILED", "EXCEPTION", 0)
    retry = cli("jobs", "show", 2, "--json").done().data
    assert (retry["retry_of"], retry["attempt"], retry["retries_remaining"]) == (1, 2, 0)


def test_logs(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "Ada", "times": 3})
    assert "is QUEUED and has no log lines" in cli("jobs", "logs", 1).done().err
    drain(app)
    lines = cli("jobs", "logs", 1).done().out.splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["hello Ada, 0", "hello Ada, 1", "hello Ada, 2"]
    assert cli("jobs", "logs", 1, "--tail", 1).done().out.splitlines() == lines[-1:]
    assert cli("jobs", "logs", 1, "--tail", 0).done().out == ""
    assert cli("jobs", "logs", "-f", 1).done().out.splitlines() == lines
    records = cli("jobs", "logs", 1, "--json").done().records
    assert (records[0]["level"], records[0]["message"]) == ("INFO", "hello Ada, 0")


def test_explain(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    app.enqueue("shop.greet", {"name": "b"})
    app.enqueue("shop.greet", {"name": "c"}, delay="1h")
    app.enqueue("shop.greet", {"name": "d"}, hold=True)
    app.client.pause_queue(note="until the disk is back")
    said = cli("jobs", "explain", 2).done().out
    assert "job 2 is QUEUED, rank 2" in said
    assert re.search(r"^  paused +the queue is paused: until the disk is back;", said, re.MULTILINE)
    assert re.search(r"^  behind +behind a better placed job \(job 1\)$", said, re.MULTILINE)
    facts = cli("jobs", "explain", 2, "--json").done().data
    assert [one["kind"] for one in facts["blockers"]] == ["paused", "no_worker", "behind"]
    assert [one["kind"] for one in cli("jobs", "explain", 3, "--json").data["blockers"]] == ["not_before"]
    assert [one["kind"] for one in cli("jobs", "explain", 4, "--json").data["blockers"]] == ["status"]
    app.client.resume_queue()
    drain(app)
    assert "has ended: COMPLETED" in cli("jobs", "explain", 1).done().out


def test_explain_says_when_it_starts(cli: Here, app: App) -> None:
    for name in "abcd":
        app.enqueue("shop.greet", {"name": name})
    drain(app, limit=1)
    elsewhere = workers.Identity(7, "elsewhere", "boot", 1, 1)
    tasks = ["shop.greet"]
    app.database.transact("w", lambda tx: workers.register(tx, elsewhere, SYSTEM, slots=2, tasks=tasks, lease=60.0))
    first = cli("jobs", "explain", 2).done().out
    assert first == "job 2 is QUEUED, rank 1: starts any moment now\n  nothing blocks it: it starts next\n"
    said = cli("jobs", "explain", 4).done().out.splitlines()
    # Told by how long the first one took.
    assert re.match(r"job 4 is QUEUED, rank 3: starts (in about \S+ \S+|any moment now)$", said[0])
    assert said[1] == "  behind  behind 2 better placed jobs (job 3)"
    facts = cli("jobs", "explain", 4, "--json").done().data
    assert set(facts) == {"job_id", "status", "rank", "blockers", "start_estimate"}
    assert set(facts["blockers"][0]) == {"kind", "detail", "by", "since", "until"}
    assert facts["start_estimate"].keys() == {"p50", "p90"}
    assert all(re.match(r"20\d\d-\d\d-\d\dT.*Z$", instant) for instant in facts["start_estimate"].values())
    listed = cli("queue", "ls", "--json").done().data["items"]
    assert [[one["kind"] for one in item["blockers"]] for item in listed] == [[], ["behind"], ["behind"]]
    assert app.job(4).explain().blockers[0].by == "job 3"


def test_wait(cli: Here, app: App) -> None:
    app.enqueue("shop.greet", {"name": "a"})
    app.enqueue("shop.fail", retry=0)
    late = cli("jobs", "wait", 1, "--timeout", "0s")
    late.refused(4, "job 1 is still QUEUED", "headway jobs explain 1")
    drain(app)
    assert "COMPLETED" in cli("jobs", "wait", 1).done().out
    both = cli("jobs", "wait", 1, 2, "--json")
    assert both.code == 1
    assert [job["status"] for job in both.data["items"]] == ["COMPLETED", "FAILED"]


def test_nothing_of_a_job_reaches_the_terminal_as_a_command(cli: Here, app: App) -> None:
    app.enqueue("shop.fail", {"error": "[bold red]\x1b]0;owned\x07\x1b[31m\u202eevil"}, retry=0)
    drain(app)
    for shown in (cli("jobs", "ls"), cli("jobs", "show", 1), cli("jobs", "logs", 1), cli("runs", "ls")):
        assert "\x1b" not in shown.done().out
        assert "\u202e" not in shown.out
    assert "[bold red]\\x1b]0;owned" in cli("jobs", "show", 1).out


def test_a_job_that_does_not_exist(cli: Here) -> None:
    for args in (
        ["show", 9],
        ["logs", 9],
        ["explain", 9],
        ["wait", 9],
        ["cancel", 9],
        ["edit", 9, "a=1"],
        ["move", 9, "--to", "top"],
    ):
        cli("jobs", *args).refused(3, "there is no job 9", "headway jobs ls")
    assert cli("jobs", "show", 9, "--json").error == {
        "code": "not_found",
        "message": "there is no job 9",
        "exit_code": 3,
    }
    cli("runs", "show", 9).refused(3, "there is no run 9", "headway runs ls")


def test_runs(cli: Here, app: App) -> None:
    assert "no run matches" in cli("runs", "ls").done().err
    app.enqueue("shop.greet", {"name": "Ada"})
    app.enqueue("shop.fail", retry=0)
    app.enqueue("shop.skip")
    drain(app)
    assert cli("runs", "ls").done().out.splitlines()[1].split()[:3] == ["3", "SKIPPED", "shop.skip"]
    found = cli("runs", "ls", "--json").done().data["items"]
    assert [run["run_id"] for run in found] == [3, 2, 1]
    assert found[0].keys() == RUN
    assert [run["run_id"] for run in cli("runs", "ls", "--json", "--status", "FAILED").data["items"]] == [2]
    assert [
        run["run_id"] for run in cli("runs", "ls", "--json", "--task", "shop.greet", "--since", "1h").data["items"]
    ] == [1]
    assert "no luck" in cli("runs", "show", 2).done().out
    assert cli("runs", "show", 1, "--json").data["result"] == {"greeted": "Ada", "times": 1}
    retried = cli("runs", "retry", 2, "--json").done().data["items"][0]
    assert (retried["retry_of"], retried["status"]) == (2, "QUEUED")
    cli("runs", "retry", 1).refused(4, "job 1 is COMPLETED")
