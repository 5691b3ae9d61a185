"""`hold`: runs a program while a reservation holds a resource or a target for it.

The reservation has the same lease as that of a direct call.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from headway.cli.command import Invocation, command

if TYPE_CHECKING:
    from headway.cli.backend.local import LocalBackend
    from headway.engine.direct.reservation_holder import ReservationHolder, ReservedPlace
    from headway.engine.direct.reservations import End, ReservationRequest
    from headway.model.queue.capacity import Reserved

NOT_FOUND, NOT_RUNNABLE = 127, 126
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NONE: list[str] = []
USAGE = "headway hold RESOURCE -- CMD…, headway hold --target NAME -- CMD…, or headway hold -- CMD… for the next slot"
NEXT_SLOT = "the next slot"


class _KeepDashes(TyperCommand):
    """A command whose words keep the first `--`, which says where the program begins.

    The context is Any, because typer has a private copy of its class.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            args = [*args[: args.index("--")], "--", *args[args.index("--") :]]
        return super().parse_args(ctx, args)


def register(root: typer.Typer) -> None:
    @command(root, "hold", cls=_KeepDashes)
    def hold(
        call: Invocation,
        words: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[RESOURCE] -- CMD",
                help="Resource (none: the next slot of the policy's lane), and the program with its arguments.",
            ),
        ] = None,
        targets: Annotated[
            list[str], typer.Option("--target", metavar="NAME", help="Target to hold instead of a resource.")
        ] = NONE,
        wait: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Longest time to wait for it, like 5m.")
        ] = None,
    ) -> int:
        """Run a program while a slot is reserved for it: headway hold -- CMD, headway hold ollama -- CMD"""
        from headway.model.values.names import check_name
        from headway.model.values.times import seconds

        limit = None if wait is None else seconds(wait, field="--wait")
        target = _only_target(targets)
        resource, argv = _split(words or [], target)
        if (name := target or resource) is not None:
            check_name(name, field="RESOURCE" if target is None else "--target")
        with call.local() as backend:
            _refuse_second(backend, argv[0])
            if (missing := _cannot_run(argv[0])) is not None:
                call.out.say(f"headway: {missing}")
                return NOT_FOUND
            return _Hold(call, backend, name, on_target=target is not None).run(argv, limit)


def _only_target(targets: list[str]) -> str | None:
    from headway.errors import BadInput

    if len(targets) > 1:
        raise BadInput(f"hold takes one target, not {' and '.join(targets)}: {USAGE}", field="--target")
    return targets[0] if targets else None


def _refuse_second(backend: LocalBackend, program: str) -> None:
    """Refuses a resource in the place of the program, which means a caller wants to hold two resources."""
    from headway.errors import BadInput
    from headway.store.queue.lanes import resources

    with backend.read() as tx:
        if program in resources(tx) and shutil.which(program) is None:
            raise BadInput(f"hold takes one resource, and {program} is a second one: {USAGE}", field="CMD")


def _split(words: list[str], target: str | None) -> tuple[str | None, list[str]]:
    """Splits the words into the name of the resource, None for no resource, and the program.

    Without `--` the first word is the resource, unless a target is held.
    """
    from headway.errors import BadInput

    dashes = words.index("--") if "--" in words else None
    first = (0 if target is not None else 1) if dashes is None else dashes
    names, argv = words[:first], words[first if dashes is None else first + 1 :]
    if names and target is not None:
        raise BadInput(f"hold takes a resource or a target, not {names[0]} and {target}: {USAGE}", field="CMD")
    if len(names) > 1:
        raise BadInput(f"hold takes one resource, and {names[1]} is a second one: {USAGE}", field="CMD")
    if not argv or not argv[0]:
        raise BadInput(f"the resource or the program is missing: {USAGE}", field="CMD")
    return (names[0] if names else None), argv


def _cannot_run(program: str) -> str | None:
    """Returns why a program cannot be run, or None. Checked before the wait for the reservation."""
    if shutil.which(program) is not None:
        return None
    return f"{program} is not an executable program: check its name, or give its path"


class _Hold:
    """Runs one program under one reservation."""

    def __init__(self, call: Invocation, backend: LocalBackend, name: str | None, *, on_target: bool) -> None:
        self.call = call
        self.backend = backend
        self.name = name or NEXT_SLOT
        self.next_slot = name is None
        self.on_target = on_target
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = False
        self.early: list[int] = []
        self.shares_terminal = _in_foreground()
        self.lost = ""

    def run(self, argv: list[str], limit: float | None) -> int:
        from headway.engine.direct.reservation_holder import HolderConfig, ReservationHolder, ReservedPlace

        settings, client = self.backend.settings, self.backend.client
        request = self._request(argv)
        times = (settings.lease, settings.heartbeat, settings.recovery_interval)
        secret = frozenset(secret.variable for secret in settings.secrets.values() if secret.variable)
        terms = HolderConfig(*times, settings.listen, secret)
        holder, place = ReservationHolder(self.backend.database, terms, resources=client.lanes.defined), ReservedPlace()
        holder.open()
        try:
            with self._signals():
                return self._hold(holder, place, request, argv, limit)
        finally:
            holder.leave()
            holder.close()

    def _request(self, argv: list[str]) -> ReservationRequest:
        from headway.engine.direct.reservations import ReservationRequest
        from headway.store.queue.lanes import find_target, read_concurrency, resource_lanes

        tenant_id, holder = self.backend.tenant_id, f"{self.backend.client.actor.shown}: {os.path.basename(argv[0])}"
        with self.backend.read() as tx:
            if self.on_target:
                return ReservationRequest(tenant_id, holder, target_id=find_target(tx, tenant_id, self.name)[0])
            if self.next_slot:
                read_concurrency(tx)[0].shared_lanes()  # refuses a policy without one before anything is stored
                return ReservationRequest(tenant_id, holder)
            if self.name not in self.backend.client.lanes.defined:
                resource_lanes(tx, [self.name])  # refuses an unknown resource before anything is stored
        return ReservationRequest(tenant_id, holder, resources=(self.name,))

    def _hold(
        self,
        holder: ReservationHolder,
        place: ReservedPlace,
        request: ReservationRequest,
        argv: list[str],
        limit: float | None,
    ) -> int:
        from headway.engine.direct.reservations import End

        end = End("ABANDONED", "the caller ended before the program began")
        try:
            holder.reserve(place, request, actor=self.backend.client.actor)
            self._await(holder, place, limit)
            code, end = self._run(holder, place, argv)
            self._tell("ended", "", exit_code=code)
            return code
        finally:
            if place.id not in holder.at_work:
                holder.release(place, end)

    def _await(self, holder: ReservationHolder, place: ReservedPlace, limit: float | None) -> None:
        began = time.monotonic()
        if not place.granted:
            self._tell("waiting", f"waiting for {self.name}: {self._ahead(place)}", reservation_id=place.id)
            holder.wait_for(place, limit, what=f"hold {self.name}")
            waited = round(time.monotonic() - began, 3)
            self._tell("granted", f"{self.name} is reserved", reservation_id=place.id, waited=waited)

    def _ahead(self, place: ReservedPlace) -> str:
        """Describes what the reservation waits for."""
        from headway.store.queue import reservations

        with self.backend.read() as tx:
            line = [active.reserved for active in reservations.active(tx)]
        ours = next((reserved for reserved in line if reserved.id == place.id), None)
        before = [other for other in line if ours is not None and other.id < ours.id and _meet(other, ours)]
        if not before:
            if self.next_slot:
                return "a running job has to end first"
            return "a job uses it, or it is paused" if self.on_target else "a job that uses it has to end first"
        return (
            "1 direct call or hold is ahead" if len(before) == 1 else f"{len(before)} direct calls or holds are ahead"
        )

    # --- the program ---

    def _run(self, holder: ReservationHolder, place: ReservedPlace, argv: list[str]) -> tuple[int, End]:
        from headway.engine.direct.reservations import End
        from headway.engine.execution import process_tree
        from headway.store import workers

        database, tag, me = self.backend.database, process_tree.new_tag(), os.getpid()
        # The tag is stored before the program runs. If this process dies, recovery finds the program by its tag and
        # ends it.
        facts = {"slot": 0, "tag": tag, "pid": me, "process_start": process_tree.start_time(me) or 0}
        database.transact("adopt", lambda tx: workers.adopt(tx, holder.who.id, **facts))  # type: ignore[arg-type]
        holder.begin(place, lambda why: self._lose(tag, why))
        try:
            code = self._execute(argv, tag)
        finally:
            # Processes that the program left behind would still use the resource that the next job gets.
            if process_tree.end_tree(tag, grace=0):
                self._forget(tag)
                holder.finish(place)
        if self.lost:
            self._tell("lost", f"the reservation of {self.name} was lost, and the program was ended: {self.lost}")
            return code, End("ABANDONED", self.lost)
        return code, End("COMPLETED") if code == 0 else End("FAILED", f"exit code {code}")

    def _forget(self, tag: str) -> None:
        from headway.errors import Unreachable

        try:
            self.backend.database.transact("disown", lambda tx: tx.run("drop_process", tag=tag))
        except Unreachable as error:  # recovery removes the row later; the program's exit code is still valid
            self.call.out.say(f"headway: {error}")

    def _execute(self, argv: list[str], tag: str) -> int:
        from headway.engine.execution.process_tree import TAG

        group = None if self.shares_terminal else 0
        self.begun = True
        try:
            self.process = subprocess.Popen(argv, env={**os.environ, TAG: tag}, process_group=group)
        except OSError as error:
            self.call.out.say(f"headway: {argv[0]} cannot be run: {error.strerror}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE
        if self.lost:
            self.process.kill()
        for number in self.early:
            self._pass_on(number)
        code = self.process.wait()
        return code if code >= 0 else 128 - code

    def _lose(self, tag: str, why: str) -> None:
        from headway.engine.execution import process_tree

        self.lost = why
        process_tree.end_tree(tag, grace=0)
        if self.process is not None:  # for systems where processes cannot be found by their tag
            self.process.kill()

    # --- signals and messages ---

    @contextmanager
    def _signals(self) -> Iterator[None]:
        heard = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]  # ignored under nohup
        before = {number: signal.signal(number, self._on_signal) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Passes a signal on to the program; exits if the program has not begun.

        On a shared terminal the program has received Ctrl-C already.
        """
        if not self.begun:
            raise SystemExit(128 + number)
        if self.shares_terminal and number == signal.SIGINT:
            return
        if self.process is None:  # the program is being started and may run already
            self.early.append(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            if self.shares_terminal:
                self.process.send_signal(number)
            elif self.process.poll() is None:
                os.killpg(self.process.pid, number)

    def _tell(self, event: str, text: str, **facts: Any) -> None:
        """Prints an event on stderr, because stdout belongs to the program."""
        if self.call.out.as_json:
            print(json.dumps({"event": event, "name": self.name, **facts}), file=sys.stderr, flush=True)
        elif text:
            self.call.out.say(f"headway: {text}")


def _meet(first: Reserved, second: Reserved) -> bool:
    """Returns True if two reservations need the same target or a common lane."""
    same_target = first.target_id is not None and first.target_id == second.target_id
    return same_target or not set(first.lanes).isdisjoint(second.lanes)


def _in_foreground() -> bool:
    """Returns True if this process is in the foreground of a terminal.

    Then the program stays in our process group, so that it can read keys and receives Ctrl-C and Ctrl-Z as if it had
    been started alone. Otherwise it gets a process group of its own.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
