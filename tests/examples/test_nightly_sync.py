"""The example `nightly-sync`, beside a fake directory server and a small SQLite source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from tests.examples.directory import directories
from tests.examples.site import Example, check_page, example
from tests.support.cli import ROOT, until

FOLDER = ROOT / "examples" / "nightly-sync"


def _source(file: Path) -> None:
    with apsw.Connection(str(file)) as source:
        source.execute((FOLDER / "people.sql").read_text("utf-8"))


def _execution(night: Example) -> dict[str, Any]:
    (listed,) = night.http.get("/api/schedule-executions").json()["items"]
    shown: dict[str, Any] = night.http.get(f"/api/schedule-executions/{listed['execution_id']}").json()
    return shown


def _steps(night: Example) -> dict[str, dict[str, Any]]:
    return {step["step"]: step for step in _execution(night)["steps"]}


def _states(night: Example) -> dict[str, str]:
    return {name: step["status"] for name, step in _steps(night).items()}


def test_a_night_waits_for_a_person_and_then_goes_on(database_url: str, tmp_path: Path) -> None:
    _source(tmp_path / "hr.db")
    with directories() as server:
        server.refused.add("/ldap/people/2")
        more = {"DIRECTORY_URL": server.url, "HEADWAY_CONNECTIONS__hr": f"sqlite:///{tmp_path}/hr.db"}
        with example(FOLDER, database_url, tmp_path / "files", **more) as night:
            night.headway("schedules", "run", "nightly sync")
            until(lambda: _states(night)["export to LDAP"] == "ERROR", "the export that is held")
            until(lambda: _states(night)["export to AD"] == "COMPLETED", "the other export")
            assert _states(night) == {
                "read people": "COMPLETED",
                "export to AD": "COMPLETED",
                "export to LDAP": "ERROR",
                "confirm AD": "WAITING",
                "confirm LDAP": "WAITING",
                "write the date": "WAITING",
            }
            held = _steps(night)["export to LDAP"]["job_id"]
            assert "refused person 2: 409" in night.job(held)["reason"]
            assert f"{held}" in night.headway("targets", "show", "ldap").out
            server.people["ldap"].update({number: server.people["ad"][number] for number in ("2", "4")})  # by hand
            night.headway("jobs", "resolve", held, "--result", '{"written": 3}')
            until(lambda: set(_states(night).values()) == {"COMPLETED"}, "the end of the night")
            assert night.job(_steps(night)["confirm LDAP"]["job_id"])["run"]["result"] == {"confirmed": 3}
            assert _execution(night)["status"] == "COMPLETED"
            assert night.headway("verify").out == ""
        assert server.people["ad"] == server.people["ldap"]
        assert [person["name"] for person in server.people["ad"].values()] == ["Ada", "Grace", "Edsger"]
    with apsw.Connection(str(tmp_path / "hr.db")) as source:
        assert source.execute("select count(*) from sync").fetchall() == [(1,)]


def test_the_settings_and_the_commands_of_the_page_are_right() -> None:
    check_page(FOLDER)
