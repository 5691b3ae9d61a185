"""Processes that outlive every signal, as those do that hang in the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headway.engine.execution import process_tree
from tests.support.deadlines import read_line


@contextmanager
def unkillable() -> Iterator[None]:
    """No signal that this process sends to the processes of a job takes effect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_tree, "_send", lambda *_: None)
        patch.setattr(process_tree, "_send_group", lambda *_: None)
        patch.setattr(process_tree, "KILL_SECONDS", 0.05)
        yield


@contextmanager
def left_behind() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A process of some work, and its tag."""
    tag = process_tree.new_tag()
    program = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    process = subprocess.Popen(program, env=os.environ | {process_tree.TAG: tag}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert read_line(process.stdout) == b"up\n"
        yield tag, process
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
