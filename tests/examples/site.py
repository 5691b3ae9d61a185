"""An example as a newcomer runs it: `headway up` in its folder, with commands and HTTP requests to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.docs import test_code_blocks as code_blocks
from tests.docs.pages import blocks
from tests.support.cli import Answer, line_of, program, running, until


@dataclass(frozen=True)
class Example:
    """A running process of an example."""

    folder: Path
    database: str
    http: httpx.Client

    def headway(self, *args: object) -> Answer:
        return program(*args, cwd=self.folder, database=self.database).done()

    def job(self, job_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/api/jobs/{job_id}").raise_for_status().json()
        return found

    def reaches(self, job_id: int, status: str) -> dict[str, Any]:
        found: dict[str, Any] = until(
            lambda: (job := self.job(job_id))["status"] == status and job, f"job {job_id} being {status}"
        )
        return found


@contextmanager
def example(folder: Path, database: str, files: Path, **more: str) -> Iterator[Example]:
    quick = {"HEADWAY_ARTIFACTS": str(files), "HEADWAY_RETRY__BASE_DELAY": "100ms", "HEADWAY_SHUTDOWN_GRACE": "5s"}
    with running("up", "--json", cwd=folder, database=database, **quick, **more) as up:
        url = json.loads(line_of(up.stdout, "started"))["url"]
        with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as http:
            yield Example(folder, database, http)


def check_page(folder: Path) -> None:
    """Checks the settings, and that every command of the page exists and takes its arguments."""
    assert program("config", "check", cwd=folder).code == 0
    shell = [block for block in blocks(folder / "README.md") if block.language == "sh"]
    lines = [line for block in shell for line in block.text.splitlines() if line.startswith("headway ")]
    assert len(lines) > 5
    for line in lines:
        code_blocks.test_commands_can_be_given(str(folder), line)
