"""`headway hold`: a program runs while its resource or target is held, and nothing of it outlives the hold."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway.app import App
from headway.engine.client import limits
from headway.engine.maintenance.recovery import Recovery
from headway.model.jobs.job import SYSTEM, Reservation
from headway.model.queue.policies import Concurrency
from headway.store import workers
from headway.store.db import Database
from headway.store.queue import reservations
from headway.testing import drain
from tests.support.cli import PATIENCE, Answer, Here, line_of, program, running, until
from tests.support.deadlines import read_all
from tests.support.terminal import terminal

QUICK = {"HEADWAY_HEARTBEAT": "200ms", "HEADWAY_RECOVERY_INTERVAL": "300ms"}
STAYS = "trap 'echo heard; exit 5' TERM INT; echo up; while :; do sleep 0.02; done"


@pytest.fixture
def site(app: App) -> App:
    """An installation with a resource of 1 and a target."""
    limits.settle(app.database, Concurrency(), {"gpu": 1}, actor=SYSTEM, adopt=True)
    app.enqueue("shop.skip", target="desk-1")
    drain(app)
    return app


def held(database: Database) -> list[Reservation]:
    with database.read() as tx:
        numbers = tx.connection.execute("select id from hw_reservation order by id").fetchall()  # type: ignore[attr-defined]
        return [one for (number,) in numbers if (one := reservations.find(tx, number)) is not None]


def callers(database: Database) -> list[int]:
    with database.read() as tx:
        found = tx.connection.execute("select id from hw_worker where kind = 'caller'").fetchall()  # type: ignore[attr-defined]
    return [worker_id for (worker_id,) in found]


def hold(cli: Here, *args: object, **more: Any) -> Answer:
    return program("hold", *args, cwd=cli.folder, database=cli.database, **more)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- the program --------------------------------------------------------------------------------------------------


def test_a_program_runs_with_our_input_and_output_and_its_exit_code_is_ours(cli: Here, site: App) -> None:
    answer = hold(cli, "gpu", "--", "sh", "-c", "cat; echo not fine >&2; exit 3", stdin="words\n")
    assert answer == Answer(3, "words\n", "not fine\n")
    (one,) = held(site.database)
    assert (one.status, one.outcome, one.error, one.task) == ("RELEASED", "FAILED", "exit code 3", None)
    assert one.holder.endswith(": sh")
    assert hold(cli, "--target", "desk-1", "--", "echo", "--", "-x") == Answer(0, "-- -x\n", "")
    assert held(site.database)[1].outcome == "COMPLETED"
    assert held(site.database)[1].target_id is not None


def test_death_by_a_signal_is_128_and_its_number(cli: Here, site: App) -> None:
    assert hold(cli, "gpu", "--", "sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL


def test_leftovers_of_a_program_end_with_it(cli: Here, site: App) -> None:
    left = hold(cli, "gpu", "--", "sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!").done().out
    assert not alive(int(left))
    with site.database.read() as tx:
        assert [tx.run("processes_of", worker_id=one) for one in callers(site.database)] == [[]]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("gpo", "--", "true"), 2, "did you mean gpu"),
        (("--target", "desk-9", "--", "true"), 3, "no target 'desk-9'"),
        (("gpu",), 2, "program is missing"),
        ((), 2, "program is missing"),
        (("--target", "desk-1"), 2, "program is missing"),
        (("gpu", "--", ""), 2, "program is missing"),
        (("g\npu", "--", "true"), 2, "control characters"),
        (("gpu", "remote", "--", "true"), 2, "remote is a second one"),
        (("gpu", "--target", "desk-1", "--", "true"), 2, "a resource or a target"),
        (("gpu", "--wait", "soon", "--", "true"), 2, "--wait"),
        (("gpu", "--", "no-such-program"), 127, "no-such-program"),
        (("gpu", "--", "/etc/passwd"), 127, "/etc/passwd"),
    ],
)
def test_impossible_values_are_refused_and_change_nothing(
    cli: Here, site: App, args: tuple[str, ...], code: int, words: str
) -> None:
    cli("hold", *args).refused(code, words)
    assert held(site.database) == []
    assert callers(site.database) == []


def test_without_a_resource_the_next_slot_is_held(cli: Here, site: App) -> None:
    said = hold(cli, "--", "sh", "-c", "echo in; exit 3", "--", "more")
    assert (said.code, said.out) == (3, "in\n")
    (made,) = held(site.database)
    listed = cli("reservations", "ls", "--json").data["items"]
    assert [(one["reservation_id"], one["lanes"], one["status"]) for one in listed] == [
        (made.id, ["global"], "RELEASED")
    ]
    shown = cli("reservations", "show", made.id).done().out
    assert "global" in shown
    assert "RELEASED" in shown
    assert cli("reservations", "ls", "--status", "active", "--json").data["items"] == []
    cli("reservations", "ls", "--status", "soon").refused(2, "use ACTIVE, RELEASED, EXPIRED")
    cli("reservations", "show", 77).refused(3, "no reservation 77")
    mine = site.client.reserve(resources=["gpu"])
    assert "gpu" in cli("reservations", "ls").done().out
    cli("reservations", "release", mine.id).done()
    assert site.client.reservation(mine.id).status == "RELEASED"
    limits.settle(site.database, Concurrency("per_task"), {}, actor=SYSTEM, adopt=True)
    cli("hold", "--", "true").refused(2, "no lane is shared by all tasks")
    assert cli("verify", "--quiet").done().out == ""


# --- waiting ------------------------------------------------------------------------------------------------------


def test_it_says_what_it_waits_for_and_goes_when_it_is_free(cli: Here, site: App) -> None:
    other = site.client.reserve(resources=["gpu"])
    with running("hold", "gpu", "--", "echo", "done", cwd=cli.folder, database=cli.database) as process:
        line_of(process.stderr, "waiting for gpu: 1 direct call or hold is ahead")
        site.client.release_reservation(other.id)
        line_of(process.stderr, "gpu is reserved")
        assert process.wait(PATIENCE) == 0
        assert process.stdout is not None
        assert read_all(process.stdout) == "done\n"


def test_a_paused_target_is_waited_for(cli: Here, site: App) -> None:
    site.client.pause_target("desk-1")
    with running("hold", "--target", "desk-1", "--", "true", cwd=cli.folder, database=cli.database) as process:
        line_of(process.stderr, "waiting for desk-1: a job uses it, or it is paused")
        site.client.resume_target("desk-1")
        assert process.wait(PATIENCE) == 0


def test_a_waiter_gives_up_in_the_end(cli: Here, site: App) -> None:
    site.client.reserve(resources=["gpu"])
    answer = hold(cli, "gpu", "--wait", "50ms", "--", "true")
    assert (answer.code, answer.out) == (4, "")
    assert "waiting for gpu" in answer.err
    assert "got no slot within 50ms" in answer.err
    assert (held(site.database)[1].status, held(site.database)[1].outcome) == ("RELEASED", "ABANDONED")


def test_for_programs_it_speaks_json_beside_the_output(cli: Here, site: App) -> None:
    other = site.client.reserve(resources=["gpu"])
    with running("hold", "gpu", "--json", "--", "echo", "out", cwd=cli.folder, database=cli.database) as process:
        waits = json.loads(line_of(process.stderr, "waiting"))
        site.client.release_reservation(other.id)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "out\n")
    granted, ended = map(json.loads, err.splitlines())
    assert waits == {"event": "waiting", "name": "gpu", "reservation_id": other.id + 1}
    assert (granted["event"], granted["waited"] > 0) == ("granted", True)
    assert ended == {"event": "ended", "name": "gpu", "exit_code": 0}


# --- signals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_the_programs(cli: Here, site: App, number: signal.Signals) -> None:
    with running("hold", "gpu", "--", "sh", "-c", STAYS, cwd=cli.folder, database=cli.database) as process:
        line_of(process.stdout, "up")
        process.send_signal(number)
        line_of(process.stdout, "heard")
        assert process.wait(PATIENCE) == 5
    assert held(site.database)[0].status == "RELEASED"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_while_it_waits_gives_the_place_back(cli: Here, site: App, number: signal.Signals) -> None:
    site.client.reserve(resources=["gpu"])
    with running("hold", "gpu", "--", "true", cwd=cli.folder, database=cli.database) as process:
        line_of(process.stderr, "waiting for gpu")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 128 + number
    one = held(site.database)[1]
    assert (one.status, one.outcome, one.granted_at) == ("RELEASED", "ABANDONED", None)


def test_at_a_terminal_the_program_reads_keys_and_hears_ctrl_c_once(cli: Here, site: App) -> None:
    script = "trap 'echo heard; sleep 0.2; exit 6' INT; read word; echo got $word; while :; do sleep 0.02; done"
    with terminal("hold", "gpu", "--", "sh", "-c", script, cwd=cli.folder, database=cli.database) as screen:
        screen.type("keys\n")
        screen.until("got keys")
        screen.type("\x03")
        assert screen.ended() == 6
    assert screen.text.count("heard") == 1


# --- the lease ----------------------------------------------------------------------------------------------------


def test_killed_it_frees_the_lane_and_its_program_dies(cli: Here, site: App) -> None:
    """The program ignores what it can, and has a child in a session of its own."""
    script = "trap '' TERM INT HUP; setsid sleep 600 & echo $$ $! > pids.new; mv pids.new pids; wait; wait"
    pids = cli.folder / "pids"
    with running("hold", "gpu", "--", "sh", "-c", script, cwd=cli.folder, database=cli.database) as process:
        until(pids.exists)
        process.kill()
        process.wait(60)
        both = [int(pid) for pid in pids.read_text().split()]
        assert all(map(alive, both)), "they died with it, and nothing is shown"
        Recovery(site.database).tick()
        until(lambda: not any(map(alive, both)))
    (one,) = held(site.database)
    assert (one.status, one.outcome) == ("EXPIRED", "ABANDONED")
    assert site.client.reserve(resources=["gpu"]).granted_at is not None


def test_killed_it_frees_the_lane_for_another_one_that_waits(cli: Here, site: App) -> None:
    """No worker, nobody else: who waits sees that the other one is gone."""
    up = Path(cli.folder / "up")
    with running(
        "hold", "gpu", "--", "sh", "-c", "touch up; sleep 600", cwd=cli.folder, database=cli.database
    ) as first:
        until(up.exists)
        with running("hold", "gpu", "--", "true", cwd=cli.folder, database=cli.database, **QUICK) as second:
            line_of(second.stderr, "waiting for gpu")
            first.kill()
            first.wait(60)
            second.communicate(timeout=PATIENCE)
            assert second.returncode == 0


def test_a_lost_lease_ends_the_program(cli: Here, site: App) -> None:
    with running("hold", "gpu", "--", "sh", "-c", STAYS, cwd=cli.folder, database=cli.database, **QUICK) as process:
        line_of(process.stdout, "up")
        (worker_id,) = callers(site.database)
        site.database.transact("give_up", lambda tx: workers.retire(tx, worker_id, "presumed dead"))
        line_of(process.stderr, "gpu was lost, and the program was ended")
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL
    assert held(site.database)[0].outcome == "ABANDONED"
