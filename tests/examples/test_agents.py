"""The example `agents`, beside a server that speaks like Ollama."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.examples.ollama import ollama
from tests.examples.site import Example, check_page, example
from tests.support.cli import ROOT, until

FOLDER = ROOT / "examples" / "agents"
SAID = "Once there was fog."


def _enqueue(desks: Example, target: str, tenant: str = "default", **wishes: Any) -> int:
    params = {"goal": "tidy up", "steps": 2}
    body = {"task": "agent.run", "params": params, "target": target, **wishes}
    made = desks.http.post("/api/jobs", json=body, headers={"Headway-Tenant": tenant})
    assert made.status_code == 201, made.text
    return int(made.json()["job_id"])


def test_agents_hold_their_desks_until_a_person_decides(database_url: str, tmp_path: Path) -> None:
    with ollama() as model:
        more = {"OLLAMA_URL": model.url, "HEADWAY_HEARTBEAT": "200ms"}
        with example(FOLDER, database_url, tmp_path / "files", **more) as desks:
            _interrupted_and_resumed(desks, model)
            _over_budget(desks, model.tokens)
            _two_tenants(desks, model)
            assert desks.headway("verify").out == ""


def _interrupted_and_resumed(desks: Example, model: Any) -> None:
    model.go_on.clear()  # the model stops in the middle of its answer
    first, second = _enqueue(desks, "desk-1"), _enqueue(desks, "desk-1")
    until(lambda: desks.job(first)["progress"], "progress of the first agent")
    desks.headway("jobs", "interrupt", first)
    model.go_on.set()
    held = desks.reaches(first, "PAUSED")
    assert held["reason"].startswith("interrupted by")
    shown = desks.http.get("/targets/desk-1/jobs").json()["jobs"]
    assert [(job["status"], job["message"]) for job in shown][-1] == ("PAUSED", "Job was interrupted by user")
    assert desks.job(second)["status"] == "QUEUED", "the desk is held"
    desks.headway("jobs", "resume", first)
    assert desks.reaches(first, "COMPLETED")["run"]["result"] == {"goal": "tidy up", "actions": [SAID, SAID]}
    desks.reaches(second, "COMPLETED")


def _over_budget(desks: Example, tokens: int) -> None:
    cap = 2 * tokens - 1
    spent = _enqueue(desks, "desk-2", budget={"tokens": cap})
    assert desks.reaches(spent, "ERROR")["failure_kind"] == "BUDGET"
    assert "held" in desks.headway("targets", "ls").out
    desks.headway("jobs", "resume", spent, "--budget", f"tokens={3 * tokens}")
    assert desks.reaches(spent, "COMPLETED")["meters"] == {"tokens": 2 * tokens}


def _two_tenants(desks: Example, model: Any) -> None:
    desks.headway("tenants", "create", "lab", "--max-running", "2", "--default-allow", "all")
    model.go_on.clear()
    model.asked.clear()
    mine = _enqueue(desks, "desk-1")
    theirs = _enqueue(desks, "desk-1", tenant="lab")
    until(lambda: len(model.asked) == 2, "both agents at the model: the desks of two tenants are two desks")
    assert desks.http.get(f"/api/jobs/{theirs}").status_code == 404
    model.go_on.set()
    desks.reaches(mine, "COMPLETED")
    lab = {"Headway-Tenant": "lab"}
    until(lambda: desks.http.get(f"/api/jobs/{theirs}", headers=lab).json()["status"] == "COMPLETED", "the other one")
    assert f"{theirs}" in desks.headway("jobs", "ls", "--tenant", "lab").out


def test_the_settings_and_the_commands_of_the_page_are_right() -> None:
    check_page(FOLDER)
