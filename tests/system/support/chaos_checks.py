"""The checks after the chaos run: the clients' diaries and the tasks' ledger against the database."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

LIMITS = {"resource:one": 1, "resource:two": 2}
WINDOW = 2.0
NANO = 1_000_000_000


# --- acknowledgements -------------------------------------------------------------------------------------------------


@dataclass
class Diaries:
    """All clients' diaries together. `said` has, per word, what its tries were answered."""

    said: dict[str, list[str]]
    acked: dict[str, int]
    notes: Counter[str]
    wrong: list[str]

    def count(self, answer: str) -> int:
        return sum(answers.count(answer) for answers in self.said.values())


def read_diaries(folder: Path) -> Diaries:
    found = Diaries(defaultdict(list), {}, Counter(), [])
    for file in sorted(folder.glob("diary-*")):
        for line in file.read_text().splitlines():
            verb, word, *rest = line.split()
            if verb in ("begun", "acked", "unknown", "refused"):
                found.said[word].append(verb)
                if verb == "acked":
                    found.acked[word] = int(rest[0])
                if verb == "refused":
                    found.notes[f"refused: {rest[0]}"] += 1
            else:
                found.notes[verb] += 1
                if verb in ("fork-hung", "fork-failed"):
                    found.wrong.append(f"{file.name}: {line}")
    return found


def check_acknowledged(connection: psycopg.Connection[Any], diaries: Diaries) -> Iterator[str]:
    """Each acknowledged job exists once; each refused one does not; one of an unknown commit may, once per try."""
    jobs: dict[str, list[int]] = defaultdict(list)
    for job_id, params in connection.execute("select id, params from hw_job where retry_of is null"):
        jobs[json.loads(params)["word"].partition(".")[0]].append(job_id)
    groups = {name.split()[1]: n for n, name in connection.execute("select id, name from hw_group")}
    for word, said in diaries.said.items():
        made = [groups[word]] if word in groups else jobs.get(word, [])
        unknown = said.count("begun") - said.count("acked") - said.count("refused")
        least, most = min(1, said.count("acked")), said.count("acked") + unknown
        if not least <= len(made) <= most:
            yield f"{word}: the client was told {said}, and there are {len(made)} of it: {made}"
        if word in diaries.acked and diaries.acked[word] not in made:
            yield f"{word}: acknowledged as {diaries.acked[word]}, found {made}"
        if word in groups and len(jobs[word]) != 4:
            yield f"{word}: the group has {len(jobs[word])} of its 4 jobs"
    for word in jobs.keys() - diaries.said.keys():
        yield f"{word}: {len(jobs[word])} jobs that no client made"


# --- the ledger -------------------------------------------------------------------------------------------------------


@dataclass
class Execution:
    """What one claim of one job did, from the first to the last line it wrote: at least so long it ran."""

    job: int
    fence: int
    lane: str
    word: str
    begins: int
    ends: int
    pid: int
    times: int = 0

    def __str__(self) -> str:
        return f"{self.job}.{self.fence} (pid {self.pid}, {self.begins / NANO:.3f} to {self.ends / NANO:.3f})"


def read_ledger(path: Path) -> list[Execution]:
    found: dict[tuple[int, int], Execution] = {}
    for line in path.read_text().splitlines():
        at, mark, job, fence, lane, word, pid = line.split()
        key, now = (int(job), int(fence)), int(at)
        run = found.setdefault(key, Execution(*key, lane, word, now, now, int(pid)))
        run.ends = max(run.ends, now)
        run.times += mark == "begins"
    return sorted(found.values(), key=lambda run: run.begins)


def check_ledger(runs: Iterable[Execution]) -> Iterator[str]:
    """No claim ran twice; no word, target or resource had more at work at one moment than its limit."""
    lanes: dict[str, list[Execution]] = defaultdict(list)
    for run in runs:
        if run.times > 1:
            yield f"job {run} began {run.times} times under one fence"
        lanes[f"word:{run.word}"].append(run)
        if run.lane != "-":
            lanes[run.lane].append(run)
    for lane, members in lanes.items():
        yield from _crowded(lane, members, LIMITS.get(lane, 1))


def _crowded(lane: str, members: list[Execution], limit: int) -> Iterator[str]:
    at_work: list[Execution] = []
    for run in members:
        at_work = [other for other in at_work if other.ends > run.begins]
        at_work.append(run)
        if len(at_work) > limit:
            yield f"{lane} (limit {limit}): " + " beside ".join(map(str, at_work))


# --- throughput -------------------------------------------------------------------------------------------------------


def finished_times(connection: psycopg.Connection[Any]) -> list[float]:
    """When each job ended, in seconds of the clock that the controller reads too."""
    text = "select finished_at / 1e6 from hw_job where finished_at is not null order by finished_at"
    return [float(row[0]) for row in connection.execute(text)]


def rate(times: list[float], since: float, until: float) -> float:
    return sum(since <= at < until for at in times) / (until - since)


def back_after(times: list[float], calm: float, *, since: float, until: float) -> float | None:
    """Seconds from the last fault to the first window in which as much is finished as before the faults."""
    steps = int((until - since - WINDOW) * 10)
    for n in range(max(0, steps)):
        begin = since + n / 10
        if rate(times, begin, begin + WINDOW) >= 0.9 * calm:
            return n / 10
    return None
