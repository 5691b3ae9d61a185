"""The report of a check: its findings, and how many rows were checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headway.verify.rows import GroupRow

# A history that is broken throughout must not fill the memory.
KEPT_PER_INVARIANT = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken invariant.

    `invariant` is its number (`I-03`), `thing` the thing concerned (`job 17`), `text` the description.
    """

    invariant: str
    thing: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings, and the numbers of things checked.

    `counted["findings"]` counts all findings.
    """

    findings: list[Finding]
    counted: dict[str, int]

    @property
    def clean(self) -> bool:
        return not self.findings


def gather(findings: Iterable[Finding], counted: Counter[str]) -> Report:
    """Collects the findings into a report.

    It keeps a limited number of findings per invariant.
    """
    kept: list[Finding] = []
    seen: Counter[str] = Counter()
    for finding in findings:
        seen[finding.invariant] += 1
        if seen[finding.invariant] <= KEPT_PER_INVARIANT:
            kept.append(finding)
    counted["findings"] = seen.total()
    return Report(kept, dict(counted))


def about_job(invariant: str, job_id: int, text: str) -> Finding:
    return Finding(invariant, f"job {job_id}", text)


def about_reservation(invariant: str, number: int, text: str) -> Finding:
    return Finding(invariant, f"reservation {number}", text)


def about_group(invariant: str, row: GroupRow, text: str) -> Finding:
    return Finding(invariant, f"{row.kind} {row.id}", text)
