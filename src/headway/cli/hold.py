"""`hold`: run a program while its resource or target is held for it, with the same lease as a direct call."""

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

from headway.cli.call import Call, command

if TYPE_CHECKING:
    from headway.cli.desk import LocalDesk
    from headway.engine.holder import Holder, Place
    from headway.engine.reserving import End, Wish
    from headway.model.lanes import Reserved

NOT_FOUND, NOT_RUNNABLE = 127, 126
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NONE: list[str] = []
USAGE = "headway hold RESOURCE -- CMD…, or headway hold --target NAME -- CMD…"


def register(root: typer.Typer) -> None:
    @command(root, "hold")
    def hold(
        call: Call,
        words: Annotated[
            list[str] | None,
            typer.Argument(metavar="[RESOURCE] -- CMD", help="The resource, and a program with its arguments."),
        ] = None,
        targets: Annotated[
            list[str], typer.Option("--target", metavar="NAME", help="Hold this target instead of a resource.")
        ] = NONE,
        wait: Annotated[
            str | None, typer.Option(metavar="DURATION", help="Give up when it is not free by then, like 5m.")
        ] = None,
    ) -> int:
        """Run a program while a resource is held for it: headway hold ollama -- ollama run llama3"""
        from headway.model.values import check_name, seconds

        limit = None if wait is None else seconds(wait, field="--wait")
        target = _one(targets)
        name, argv = _split(words or [], target)
        check_name(name, field="RESOURCE" if target is None else "--target")
        with call.local() as desk:
            _refuse_second(desk, argv[0])
            if (missing := _cannot_run(argv[0])) is not None:
                call.out.say(f"headway: {missing}")
                return NOT_FOUND
            return _Hold(call, desk, name, on_target=target is not None).run(argv, limit)


def _one(targets: list[str]) -> str | None:
    from headway.errors import BadInput

    if len(targets) > 1:
        raise BadInput(f"hold takes one thing at a time, not {' and '.join(targets)}: {USAGE}", field="--target")
    return targets[0] if targets else None


def _refuse_second(desk: LocalDesk, program: str) -> None:
    """A resource where the program should be: somebody meant to hold two things."""
    from headway.errors import BadInput
    from headway.store.lanes import resources

    with desk.read() as tx:
        if program in resources(tx) and shutil.which(program) is None:
            raise BadInput(f"hold takes one thing at a time, and {program} is a resource: {USAGE}", field="CMD")


def _split(words: list[str], target: str | None) -> tuple[str, list[str]]:
    """What is to be held, and the program."""
    from headway.errors import BadInput

    name, argv = (target, words) if target is not None else (words[0] if words else None, words[1:])
    if name is None or not argv or not argv[0]:
        raise BadInput(f"say what to hold and which program to run: {USAGE}", field="CMD")
    return name, argv


def _cannot_run(program: str) -> str | None:
    """Found out before anybody has to wait."""
    if shutil.which(program) is not None:
        return None
    return f"{program} is no program that can be run: check its name, or write its path"


class _Hold:
    """One program and the place it is held by."""

    def __init__(self, call: Call, desk: LocalDesk, name: str, *, on_target: bool) -> None:
        self.call = call
        self.desk = desk
        self.name = name
        self.on_target = on_target
        self.process: subprocess.Popen[bytes] | None = None
        self.begun = False
        self.early: list[int] = []
        self.shares_terminal = _in_foreground()
        self.lost = ""

    def run(self, argv: list[str], limit: float | None) -> int:
        from headway.engine.holder import Holder, Place, Terms

        settings, client = self.desk.settings, self.desk.client
        wish = self._wish(argv)
        terms = Terms(settings.lease, settings.heartbeat, settings.recovery_interval, settings.listen)
        holder, place = Holder(self.desk.database, terms, resources=client.lanes.defined), Place()
        holder.open()
        try:
            with self._signals():
                return self._hold(holder, place, wish, argv, limit)
        finally:
            holder.leave()
            holder.close()

    def _wish(self, argv: list[str]) -> Wish:
        from headway.engine.reserving import Wish
        from headway.store.lanes import find_target, resource_lanes

        tenant_id, holder = self.desk.tenant_id, f"{self.desk.client.actor.shown}: {os.path.basename(argv[0])}"
        with self.desk.read() as tx:
            if self.on_target:
                return Wish(tenant_id, holder, target_id=find_target(tx, tenant_id, self.name)[0])
            if self.name not in self.desk.client.lanes.defined:
                resource_lanes(tx, [self.name])  # refuses what is not there, before anything is made
        return Wish(tenant_id, holder, resources=(self.name,))

    def _hold(self, holder: Holder, place: Place, wish: Wish, argv: list[str], limit: float | None) -> int:
        from headway.engine.reserving import End

        end = End("ABANDONED", "it went away before the program began")
        try:
            holder.reserve(place, wish, actor=self.desk.client.actor)
            self._await(holder, place, limit)
            code, end = self._run(holder, place, argv)
            self._tell("ended", "", exit_code=code)
            return code
        finally:
            if place.id not in holder.at_work:
                holder.release(place, end)

    def _await(self, holder: Holder, place: Place, limit: float | None) -> None:
        began = time.monotonic()
        if not place.granted:
            self._tell("waiting", f"waiting for {self.name}: {self._ahead(place)}", reservation_id=place.id)
            holder.wait_for(place, limit, what=f"hold {self.name}")
            waited = round(time.monotonic() - began, 3)
            self._tell("granted", f"{self.name} is yours", reservation_id=place.id, waited=waited)

    def _ahead(self, place: Place) -> str:
        """What is in the way."""
        from headway.store import reservations

        with self.desk.read() as tx:
            line = [one.reserved for one in reservations.active(tx)]
        ours = next((one for one in line if one.id == place.id), None)
        before = [one for one in line if ours is not None and one.id < ours.id and _meet(one, ours)]
        if not before:
            return "a job has it, or it is paused" if self.on_target else "what runs there has to end first"
        return "1 direct call or hold is before it" if len(before) == 1 else f"{len(before)} others are before it"

    # --- the program ---

    def _run(self, holder: Holder, place: Place, argv: list[str]) -> tuple[int, End]:
        from headway.engine import processes
        from headway.engine.reserving import End
        from headway.store import workers

        database, tag, me = self.desk.database, processes.new_tag(), os.getpid()
        # Before it runs, so that recovery can end it should we die: it is found by its tag, whatever its number is.
        facts = {"slot": 0, "tag": tag, "pid": me, "process_start": processes.start_time(me) or 0}
        database.transact("adopt", lambda tx: workers.adopt(tx, holder.who.id, **facts))  # type: ignore[arg-type]
        holder.begin(place, lambda why: self._lose(tag, why))
        try:
            code = self._execute(argv, tag)
        finally:
            # What it left running would go on using what others get next.
            if processes.end_tree(tag, grace=0):
                self._forget(tag)
                holder.finish(place)
        if self.lost:
            self._tell("lost", f"{self.name} was lost, and the program was ended: {self.lost}")
            return code, End("ABANDONED", self.lost)
        return code, End("COMPLETED") if code == 0 else End("FAILED", f"exit code {code}")

    def _forget(self, tag: str) -> None:
        from headway.errors import Unreachable

        try:
            self.desk.database.transact("disown", lambda tx: tx.run("drop_process", tag=tag))
        except Unreachable as error:  # recovery finds that it is gone; the program's exit code counts
            self.call.out.say(f"headway: {error}")

    def _execute(self, argv: list[str], tag: str) -> int:
        from headway.engine.processes import TAG

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
        from headway.engine import processes

        self.lost = why
        processes.end_tree(tag, grace=0)
        if self.process is not None:  # where processes cannot be found by their tag
            self.process.kill()

    # --- signals and words ---

    @contextmanager
    def _signals(self) -> Iterator[None]:
        heard = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]  # nohup
        before = {number: signal.signal(number, self._on_signal) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """The program's, once there is one. At a terminal it has got Ctrl-C already, as we have."""
        if not self.begun:
            raise SystemExit(128 + number)
        if self.shares_terminal and number == signal.SIGINT:
            return
        if self.process is None:  # it is being started, and may run already
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
        """On stderr: stdout is the program's."""
        if self.call.out.as_json:
            print(json.dumps({"event": event, "name": self.name, **facts}), file=sys.stderr, flush=True)
        elif text:
            self.call.out.say(f"headway: {text}")


def _meet(one: Reserved, other: Reserved) -> bool:
    """Whether they need something in common."""
    on_one_target = one.target_id is not None and one.target_id == other.target_id
    return on_one_target or not set(one.lanes).isdisjoint(other.lanes)


def _in_foreground() -> bool:
    """Whether a person sits at a terminal that is ours: then the program stays in our group, so that it can read keys
    and hears Ctrl-C and Ctrl-Z as if it had been started alone. Elsewhere it gets a group of its own."""
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
