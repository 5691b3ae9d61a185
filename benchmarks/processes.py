"""Several processes that start at once, and what a process costs while it runs (Linux: /proc)."""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

# A worker gets the gate first, passes it when it is ready to work, and returns how many jobs it did.
Worker = Callable[..., int]


def together(worker: Worker, arguments: Sequence[tuple[Any, ...]], limit: float = 50.0) -> tuple[int, float]:
    """Run one process per tuple of arguments; jobs done by all and seconds from the gate to the last one's end."""
    context = multiprocessing.get_context("spawn")
    gate, answers = context.Barrier(len(arguments)), context.Queue()
    processes = [context.Process(target=_one, args=(worker, gate, answers, args)) for args in arguments]
    for process in processes:
        process.start()
    try:
        spans = [answers.get(timeout=limit) for _ in processes]
    except queue.Empty:
        raise TimeoutError(f"not all processes answered within {limit:.0f} s") from None
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
    errors = [span for span in spans if isinstance(span, str)]
    if errors:
        raise RuntimeError(errors[0])
    done, starts, ends = zip(*spans, strict=True)
    return sum(done), max(ends) - min(starts)


class Gate:
    """Where the processes wait for each other; remembers when it opened."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self.opened = 0.0

    def wait(self) -> None:
        self._barrier.wait(timeout=30)
        self.opened = time.monotonic()


def _one(worker: Worker, barrier: Barrier, answers: Any, arguments: tuple[Any, ...]) -> None:
    gate = Gate(barrier)
    try:
        done = worker(gate, *arguments)
        answers.put((done, gate.opened, time.monotonic()))
    except Exception as error:  # carried to the parent, which raises it
        barrier.abort()
        answers.put(f"{type(error).__name__}: {error}")


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Memory of one process, shared pages divided among those that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not tell the memory of process {pid}")


@contextmanager
def beside(program: Callable[..., None], arguments: tuple[Any, ...]) -> Iterator[int]:
    """Runs a program in a process of its own, which ends with the block; gives its number."""
    process = multiprocessing.get_context("spawn").Process(target=program, args=arguments)
    process.start()
    try:
        assert process.pid is not None
        yield process.pid
    finally:
        process.terminate()
        process.join(timeout=40)
        if process.is_alive():
            process.kill()


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += (task / "children").read_text().split()
    for child in {int(child) for child in children}:
        found += family(child)
    return found


def cost(pid: int, seconds: float) -> dict[str, float]:
    """Returns what an idle process and its children use: % of a core, and MiB."""
    pids = family(pid)
    before = sum(map(cpu_seconds, pids))
    time.sleep(seconds)
    used = sum(map(cpu_seconds, pids)) - before
    return {"cpu": 100 * used / seconds, "memory": sum(map(memory_mib, pids))}
