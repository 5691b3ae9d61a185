"""Sends webhooks: takes what is due, renders it once, sends it in threads, and records what came of it.

Any number of these may run. A delivery that is being sent is leased; when its sender dies it is sent again, the same
bytes under the same id. All that touches the database happens in the loop's own thread.
"""

from __future__ import annotations

import json
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from headway.clock import SECOND
from headway.engine import letters, processes, sending
from headway.engine.context import clean
from headway.engine.letters import Letter
from headway.engine.loop import WokenLoop
from headway.engine.turns import Turns
from headway.errors import HeadwayError, NotFound
from headway.faults import point
from headway.model.job import SYSTEM
from headway.model.webhooks import Delivery, Outcome, make_secret
from headway.store import deliveries, endpoints, receivers
from headway.store.db import Database, Tx
from headway.store.deliveries import Leased, Report
from headway.store.endpoints import Signer
from headway.store.reading import Event
from headway.store.receivers import Receiver, Waiting

log = logging.getLogger("headway")
SENDERS = 16
LEASE = 60.0
# Nobody tells what is made in another process: while anybody is to be told of anything, we look this often.
POLL = 1.0
LONGEST = 30.0
# There are more addresses than one look reaches.
FURTHER = 0.25
# Every commit may wake us; we look at most this often: with something to do, and without.
SHORTEST = 0.05
SHORTEST_IDLE = 1.0
LOOK_FOR_THE_DEAD = 30.0
FAREWELL = 4.0
# All that the parts of a request, and of an answer that somebody else wrote, are known to raise.
UNEXPECTED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError, RuntimeError, EOFError)
GONE = "what it is about was pruned before it could be sent"

# The body of a delivery as it is sent, or None when what it is about is gone.
Render = Callable[[Tx, Delivery, Event], str | None]
Send = Callable[[sending.Request, sending.Guard], sending.Sent]


class Deliverer(WokenLoop):
    name = "deliverer"

    def __init__(
        self,
        database: Database,
        *,
        render: Render,
        guard: sending.Guard | None = None,
        senders: int = SENDERS,
        send: Send = sending.send,
    ) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.render = render
        self.guard = guard or sending.Guard()
        self.senders = senders
        self.send = send
        self.here = (processes.host(), processes.boot_id())
        self.who = _identity(self.here)
        self.sent: SimpleQueue[tuple[Leased, Report | None]] = SimpleQueue()
        self.told = threading.Event()
        self.turns = Turns(senders)
        self.place = receivers.START
        self.active = False
        self.looked_for_the_dead: float | None = None

    # --- the loop ---

    def tick(self) -> float:
        self._free_the_dead()
        self._record()
        with self.database.read() as tx:
            self._activate(receivers.active(tx))
            found = [*receivers.waiting_endpoints(tx), *self._look(tx)]
        given_up = sum(self._give_up(one) for one in found)
        leased = self._lease([one for one in found if one.usable and one.next_at <= one.now])
        self._begin(leased)
        return 0.0 if leased or given_up else self._delay(found)

    def _look(self, tx: Tx) -> list[Waiting]:
        """At some of the addresses that jobs brought; the next look goes on behind them."""
        found = receivers.waiting_addresses(tx, self.place)
        self.place = found[-1].receiver if len(found) >= receivers.ADDRESSES_AT_ONCE else receivers.START
        return found

    def _give_up(self, one: Waiting) -> int:
        if one.stale:
            return self.database.transact(
                "give_up_deliveries", lambda tx: deliveries.give_up(tx, one.endpoint_id, SYSTEM)
            )
        if one.old and self.turns.closed(one.receiver):
            return self.database.transact(
                "give_up_deliveries", lambda tx: deliveries.give_up_own(tx, one.receiver, SYSTEM)
            )
        return 0

    def _delay(self, found: Sequence[Waiting]) -> float:
        free = [one for one in found if self._room(one) > 0]
        waits = [max(0.0, (one.next_at - one.now) / SECOND) for one in free if one.next_at > one.now]
        further = [] if self.place == receivers.START else [FURTHER]
        return min([POLL if self.active or found else LONGEST, *waits, *further])

    def _activate(self, active: bool) -> None:
        if active != self.active:
            self.active = active
            (self.database.watch if active else self.database.unwatch)(self.waiter)

    def wait(self, seconds: float) -> None:
        if self.at_work:
            self.told.wait(min(seconds, SHORTEST))
            self.told.clear()
        elif seconds:
            shortest = min(seconds, SHORTEST if self.active else SHORTEST_IDLE)
            self.ended.wait(shortest)
            super().wait(0.0 if self.ended.is_set() else seconds - shortest)

    def stop(self) -> None:
        super().stop()
        self.told.set()

    def run(self) -> None:
        super().run()
        self.settle(FAREWELL)
        try:
            self._record()
        except HeadwayError as error:
            log.warning("deliverer: %s; what was sent last will be sent again", error)
        self.database.unwatch(self.waiter)

    def settle(self, seconds: float = LEASE) -> bool:
        """Waits until nothing is being sent. Whether that came about."""
        deadline = time.monotonic() + seconds
        while self.sent.qsize() < len(self.at_work):  # looked at first: it may have been told before we wait
            if not self.told.wait(max(0.0, deadline - time.monotonic())):
                break
            self.told.clear()
        return self.sent.qsize() >= len(self.at_work)

    # --- taking ---

    @property
    def at_work(self) -> dict[int, Receiver]:
        return self.turns.at_work

    def _room(self, one: Waiting, taken: Sequence[Leased] = ()) -> int:
        ordinary = [leased.receiver for leased in taken if not leased.ahead]
        return self.turns.room(one.receiver, self.database.clock.now(), ordinary)

    def _room_ahead(self, one: Waiting, taken: Sequence[Leased] = ()) -> bool:
        return one.ahead and self.turns.room_ahead(one.receiver, [leased.receiver for leased in taken if leased.ahead])

    def _lease(self, due: Sequence[Waiting]) -> list[Leased]:
        if not any(self._room(one) > 0 or self._room_ahead(one) for one in due):
            return []
        return self.database.transact("lease_deliveries", lambda tx: self._take(tx, due))

    def _take(self, tx: Tx, due: Sequence[Waiting]) -> list[Leased]:
        tx.run("pin_plans")
        taken: list[Leased] = []
        for one in self.turns.order(due):
            room = self._room(one, taken)
            if room <= 0:
                continue
            if one.open:
                taken += deliveries.lease_probe(tx, self.who, one.endpoint_id, seconds=LEASE, actor=SYSTEM)
            elif one.endpoint_id:
                taken += deliveries.lease(tx, self.who, one.endpoint_id, limit=room, seconds=LEASE, actor=SYSTEM)
            else:
                taken += deliveries.lease_own(tx, self.who, one.receiver, limit=room, seconds=LEASE, actor=SYSTEM)
        for one in due:  # after the probes: who holds a delivery waits for no endpoint
            if self._room_ahead(one, taken):
                taken += deliveries.lease_ahead(tx, self.who, one.endpoint_id, seconds=LEASE, actor=SYSTEM)
        return taken

    def _free_the_dead(self) -> None:
        """What a process of this host had in hand when it died need not wait for the end of its lease."""
        now = time.monotonic()
        if self.looked_for_the_dead is not None and now - self.looked_for_the_dead < LOOK_FOR_THE_DEAD:
            return
        self.looked_for_the_dead = now
        with self.database.read() as tx:
            leases = deliveries.leases(tx)
        dead = {who for who in {who for _, who in leases} - {self.who} if self._is_dead(who)}
        if dead:
            ids = [number for number, who in leases if who in dead]
            freed = self.database.transact("free_deliveries", lambda tx: deliveries.free(tx, ids, dead, SYSTEM))
            log.warning("deliverer: %d deliveries, whose senders died, will be sent again", freed)

    def _is_dead(self, who: str) -> bool:
        host, boot, pid, start, _ = json.loads(who)
        return (host, boot) == self.here and not processes.alive(pid, start)

    # --- sending ---

    def _begin(self, leased: Sequence[Leased]) -> None:
        for letter in self._letters(self._rendered(leased)) if leased else []:
            self.turns.begin(letter.leased.delivery.id, letter.leased.receiver, ahead=letter.leased.ahead)
            try:
                threading.Thread(target=self._deliver, args=(letter,), name="headway-send", daemon=True).start()
            except RuntimeError:  # no more threads: its lease ends, and somebody sends it
                self.sent.put((letter.leased, None))

    def _rendered(self, leased: Sequence[Leased]) -> list[Leased]:
        """Each with the body that every try sends. What was rendered before stays as it is."""
        fresh = [one for one in leased if one.delivery.body is None]
        if not fresh:
            return list(leased)
        with self.database.read() as tx:
            bodies = {one.delivery.id: self._body(tx, one.delivery) for one in fresh}
        gone = [one for one in fresh if bodies[one.delivery.id] is None]
        if gone:
            self.database.transact("fail_deliveries", lambda tx: deliveries.fail(tx, gone, GONE, SYSTEM))
        made = [
            (one.delivery, f"msg_{secrets.token_hex(16)}", body)
            for one in fresh
            if (body := bodies[one.delivery.id]) is not None
        ]
        stored = self.database.transact("store_bodies", lambda tx: deliveries.store_bodies(tx, made)) if made else {}
        kept = [replace(one, delivery=stored.get(one.delivery.id, one.delivery)) for one in leased if one not in gone]
        return [one for one in kept if one.delivery.body is not None]

    def _body(self, tx: Tx, delivery: Delivery) -> str | None:
        found = tx.run("event_by_id", id=delivery.event_id)
        try:
            return self.render(tx, delivery, Event(*found[0])) if found else None
        except NotFound:
            return None

    def _letters(self, leased: Sequence[Leased]) -> list[Letter]:
        with self.database.read() as tx:
            receivers = endpoints.some(tx, {one.delivery.endpoint_id for one in leased} - {0})
            own = {one.delivery.tenant_id for one in leased if one.delivery.endpoint_id == 0}
            signers = endpoints.signers(tx, own)
        for tenant_id in own - signers.keys():
            secret = make_secret(secrets.token_bytes(32))
            signers[tenant_id] = self.database.transact(
                "make_signer",
                lambda tx, t=tenant_id, s=secret: endpoints.make_signer(tx, t, s),  # type: ignore[misc]
            )
        letters = []
        for one in leased:
            receiver = receivers.get(one.delivery.endpoint_id)
            if receiver is None:
                assert one.delivery.url is not None
                letters.append(Letter(one, one.delivery.url, signers[one.delivery.tenant_id]))
            else:
                signer = Signer(receiver.secret, receiver.old_secret, receiver.old_until)
                letters.append(Letter(one, receiver.url, signer))
        return letters

    def _deliver(self, letter: Letter) -> None:
        """One try, in a thread of its own. Should it break, the lease ends and somebody tries again."""
        report = None
        try:
            report = self._try(letter)
        finally:
            self.sent.put((letter.leased, report))
            self.told.set()

    def _try(self, letter: Letter) -> Report:
        """What nobody thought of is a failed try as well: else the receiver could have it sent again and again."""
        at, began = self.database.clock.now(), time.monotonic()
        request = sending.Request(letter.url, {}, (letter.leased.delivery.body or "").encode("utf-8", "replace"))
        try:
            request = letters.make_request(letter, at)
            point("deliver.before_send")
            sent = self.send(request, self.guard)
            point("deliver.sent")
        except UNEXPECTED as error:
            log.exception("deliverer: delivery %d could not be sent", letter.leased.delivery.id)
            said = f"it could not be sent: {type(error).__name__}: {clean(str(error))[:200]}"
            sent = sending.Sent(Outcome(None, said))
        return letters.report(letter, request, sent, at, time.monotonic() - began)

    def _record(self) -> None:
        """What came back since the last look."""
        ended: list[tuple[Leased, Report | None]] = []
        while True:
            try:
                ended.append(self.sent.get_nowait())
            except Empty:
                break
        reports = [report for _, report in ended if report is not None]
        away = False
        try:
            if reports:
                self.database.transact(
                    "record_deliveries", lambda tx: deliveries.record(tx, reports, SYSTEM, random.random)
                )
        except HeadwayError:
            away = True  # the database is: they are recorded when it is back
            raise
        finally:
            for leased, report in ended:
                if away:
                    self.sent.put((leased, report))
                else:
                    self._end(leased, report)

    def _end(self, leased: Leased, report: Report | None) -> None:
        self.turns.end(leased.delivery.id)
        if report is not None:
            self.turns.note(leased.receiver, report.outcome, self.database.clock.now())


def _identity(here: tuple[str, str]) -> str:
    """Who has a lease: a process, so that others on its host can see that it is gone."""
    pid = os.getpid()
    return json.dumps([*here, pid, processes.start_time(pid) or 0, secrets.token_hex(4)], separators=(",", ":"))
