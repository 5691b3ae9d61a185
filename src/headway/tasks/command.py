"""The built-in task `command`: runs a program and logs its output."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import tempfile
from collections import deque
from typing import IO

from headway.engine import tracing
from headway.engine.execution import process_tree
from headway.engine.execution.context import Context
from headway.engine.execution.outcome import CommandEnded, CommandFailed
from headway.engine.execution.output import Pipe
from headway.engine.execution.own_variables import WITHHELD
from headway.errors import Stopped
from headway.tasks.common import BuiltIn, bad

OUTPUT_LIMIT = 10 * 1024 * 1024

# The only variables of the worker's environment that a command gets. The rest holds database addresses and tokens.
_PASSED_ON = frozenset(("PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM"))
_TAIL_LINES = 20
_TAIL_BYTES = 4096
_WITHOUT_PIDFD = 0.02
_NOT_A_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC, errno.EISDIR, errno.ELOOP)


def run_command(
    ctx: Context,
    argv: list[str] | str,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    stdin: str | None = None,
    ok_exit_codes: list[int] | None = None,
    shell: bool = False,
    output_limit: int = OUTPUT_LIMIT,
) -> dict[str, int]:
    """Runs a program to its end.

    Without `shell`, `argv` is the program and its arguments, unchanged.
    """
    process = _start(_program(argv, shell), _folder(cwd), _environment(ctx, env or {}), stdin)
    output = _Output(ctx, process, output_limit)
    try:
        code = output.follow()
    except Stopped:
        _terminate(process)
        # Needs no time limit: after the grace the worker kills this process and its descendants.
        raise Stopped(output.follow()) from None
    if code not in ([0] if ok_exit_codes is None else ok_exit_codes):
        raise CommandFailed(code, output.tail())
    return CommandEnded(code)


command = BuiltIn("command", run_command)


def _program(argv: list[str] | str, shell: bool) -> list[str]:
    if shell:
        line = argv if isinstance(argv, str) else " ".join(argv)  # like ssh
        return ["/bin/sh", "-c", line] if line.strip() else bad("argv", "is empty: name the command to run")
    if isinstance(argv, str):
        bad("argv", 'must be a list, like ["rsync", "-a", "from", "to"], unless shell is true')
    if not argv or not argv[0]:
        bad("argv", "is empty: name the program to run")
    return argv


def _folder(cwd: str | None) -> str | None:
    if cwd is not None and not os.path.isdir(cwd):
        bad("cwd", f"is not a folder on this machine: {cwd}")
    return cwd


def _environment(ctx: Context, added: dict[str, str]) -> dict[str, str]:
    for name in added:
        if not name or "=" in name:
            bad("env", f"has the name {name!r}, which is not a valid name of a variable")
    base = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    own = {"HEADWAY_JOB_ID": str(ctx.job_id), "HEADWAY_FENCE": str(ctx.fence)}
    own |= {name: os.environ[name] for name in (process_tree.TAG, WITHHELD) if name in os.environ}
    traced = {tracing.VARIABLE: ctx.traceparent} if ctx.traceparent else {}
    return {**base, **traced, **added, **own}


def _start(argv: list[str], cwd: str | None, env: dict[str, str], stdin: str | None) -> subprocess.Popen[bytes]:
    with _input(stdin) as source:
        try:
            return subprocess.Popen(
                argv,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=cwd,
                env=env,
                process_group=0,
            )
        except OSError as error:
            if error.errno in _NOT_A_PROGRAM:
                bad("argv", f"names a program that cannot be run: {argv[0]} ({error.strerror})")
            raise
        except ValueError as error:
            bad("argv", f"or env cannot be passed to a program: {error}")


def _input(text: str | None) -> IO[bytes]:
    """Returns the input as a file.

    With a pipe, a program that does not read would make us wait.
    """
    if text is None:
        return open(os.devnull, "rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(text.encode())
    file.seek(0)
    return file


def _terminate(process: subprocess.Popen[bytes]) -> None:
    tag = os.environ.get(process_tree.TAG)
    # Each process gets one SIGTERM, because some programs skip their clean-up at a second one.
    if (not tag or not process_tree.signal_tree(tag, signal.SIGTERM)) and process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)


class _Output:
    """Copies the output of a program into the log until the program ends."""

    def __init__(self, ctx: Context, process: subprocess.Popen[bytes], limit: int) -> None:
        self._ctx = ctx
        self._process = process
        self._limit = limit
        self._written = 0
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._poller = select.poll()
        self._pidfd = process_tree.open_pidfd(process.pid)
        self._pipes: dict[int, Pipe] = {}
        for stream, take in ((process.stdout, self._out), (process.stderr, self._err)):
            if stream is not None:
                self._pipes[stream.fileno()] = Pipe(stream.fileno(), take)
        for fd in (self._pidfd, *self._pipes):
            if fd is not None:
                self._poller.register(fd, select.POLLIN)

    def follow(self) -> int:
        """Logs the output until the program ends; returns its exit code.

        Does not wait for the end of the pipes, because processes that the program left behind may hold them for ever.
        """
        while self._process.poll() is None:
            for fd, _ in self._poller.poll(None if self._pidfd is not None else _WITHOUT_PIDFD * 1000):
                if fd in self._pipes:
                    self._read(self._pipes[fd])
        for pipe in self._pipes.values():
            pipe.drain()
            pipe.end_line()
        self._close()
        return self._process.returncode

    def tail(self) -> str:
        return "\n".join(self._tail).encode()[-_TAIL_BYTES:].decode("utf-8", "ignore")

    def _read(self, pipe: Pipe) -> None:
        pipe.read()
        if pipe.ended:
            self._poller.unregister(pipe.fd)

    def _out(self, line: str) -> None:
        if self._fits(line):
            self._ctx.log.info(line)

    def _err(self, line: str) -> None:
        self._tail.append(line)
        if self._fits(line):
            self._ctx.log.warning(line)

    def _fits(self, line: str) -> bool:
        before = self._written
        self._written += len(line) + 1
        if before <= self._limit < self._written:
            self._ctx.log.warning("the output is longer than %s bytes: the rest is not kept", self._limit)
        return self._written <= self._limit

    def _close(self) -> None:
        pidfd, self._pidfd, self._pipes = self._pidfd, None, {}
        if pidfd is not None:
            os.close(pidfd)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
