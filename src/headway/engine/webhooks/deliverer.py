"""Sends webhooks: leases due deliveries, renders, sends and records them.

Several deliverers may run. A delivery that is being sent is leased; if its sender dies, another sends the same
bytes under the same id. Senders are threads; only the loop's own thread uses the database.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from headway.clock import SECOND
from headway.dice import dice
from headway.engine.execution import process_tree
from headway.engine.execution.output import clean
from headway.engine.loop import WokenLoop
from headway.engine.webhooks import http_client
from headway.engine.webhooks import request as webhook_request
from headway.engine.webhooks.fairness import DeliverySlots
from headway.engine.webhooks.request import PreparedDelivery
from headway.errors import HeadwayError, NotFound
from headway.fault_points import point
from headway.model.event import Event
from headway.model.jobs.job import SYSTEM
from headway.model.webhooks.webhook import Delivery, Outcome, make_secret
from headway.store.db import Database, Tx
from headway.store.webhooks import deliveries, endpoints, receivers
from headway.store.webhooks.deliveries import DeliveryReport, Leased
from headway.store.webhooks.endpoints import Signer
from headway.store.webhooks.receivers import Receiver, WaitingReceiver

log = logging.getLogger("headway")
SENDERS = 16
LEASE = 60.0
# Other processes do not wake the deliverer, so it polls at this interval while any webhook exists.
POLL = 1.0
LONGEST = 30.0
# Delay while one poll does not reach all URLs of jobs.
FURTHER = 0.25
# Shortest delay between two polls, with and without webhooks, because every commit may wake the deliverer.
SHORTEST = 0.05
SHORTEST_IDLE = 1.0
LOOK_FOR_THE_DEAD = 30.0
FAREWELL = 4.0
# Exceptions that making a request and parsing a foreign answer are known to raise.
UNEXPECTED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, OSError, RuntimeError, EOFError)
GONE = "the subject of the event was pruned before it could be sent"

# Renders the body of a delivery; None if its subject was pruned.
Render = Callable[[Tx, Delivery, Event], str | None]
SendRequest = Callable[[http_client.Request, http_client.Guard], http_client.SentRequest]


class Deliverer(WokenLoop):
    name = "deliverer"

    def __init__(
        self,
        database: Database,
        *,
        render: Render,
        guard: http_client.Guard | None = None,
        senders: int = SENDERS,
        send: SendRequest = http_client.send,
    ) -> None:
        super().__init__(database.waiter())
        self.database = database
        self.render = render
        self.guard = guard or http_client.Guard()
        self.senders = senders
        self.send = send
        self.here = (process_tree.host(), process_tree.boot_id())
        self.who = _identity(self.here)
        self.sent: SimpleQueue[tuple[Leased, DeliveryReport | None]] = SimpleQueue()
        self.woken = threading.Event()
        self.turns = DeliverySlots(senders)
        self.place = receivers.START
        self.active = False
        self.looked_for_the_dead: float | None = None
        # Until then, leases of this process may exist that it does not know of. Set by the loop's thread.
        self.unsure_until = 0.0
        # Deliveries that may have been sent although their thread brought no report.
        self.unreported: set[int] = set()

    # --- the loop ---

    def tick(self) -> float:
        self._free_the_dead()
        self._record()
        self._return_unknown()
        with self.database.read() as tx:
            self._activate(receivers.active(tx))
            found = [*receivers.waiting_endpoints(tx), *self._look(tx)]
        given_up = sum(self._give_up(waiting) for waiting in found)
        leased = self._take_up([waiting for waiting in found if waiting.usable and waiting.next_at <= waiting.now])
        return 0.0 if leased or given_up else self._delay(found)

    def _look(self, tx: Tx) -> list[WaitingReceiver]:
        """Returns receivers among the URLs of jobs, continuing where the last poll ended."""
        found = receivers.waiting_addresses(tx, self.place)
        self.place = found[-1].receiver if len(found) >= receivers.ADDRESSES_AT_ONCE else receivers.START
        return found

    def _give_up(self, waiting: WaitingReceiver) -> int:
        if waiting.stale:
            return self.database.transact(
                "give_up_deliveries", lambda tx: deliveries.give_up(tx, waiting.endpoint_id, SYSTEM)
            )
        if waiting.old and self.turns.closed(waiting.receiver):
            return self.database.transact(
                "give_up_deliveries", lambda tx: deliveries.give_up_own(tx, waiting.receiver, SYSTEM)
            )
        return 0

    def _delay(self, found: Sequence[WaitingReceiver]) -> float:
        free = [waiting for waiting in found if self._room(waiting) > 0]
        waits = [
            max(0.0, (waiting.next_at - waiting.now) / SECOND) for waiting in free if waiting.next_at > waiting.now
        ]
        further = [] if self.place == receivers.START else [FURTHER]
        return min([POLL if self.active or found else LONGEST, *waits, *further])

    def _activate(self, active: bool) -> None:
        if active != self.active:
            self.active = active
            (self.database.watch if active else self.database.unwatch)(self.waiter)

    def wait(self, seconds: float) -> None:
        if self.at_work:
            self.woken.wait(min(seconds, SHORTEST))
            self.woken.clear()
        elif seconds:
            shortest = min(seconds, SHORTEST if self.active else SHORTEST_IDLE)
            self.ended.wait(shortest)
            super().wait(0.0 if self.ended.is_set() else seconds - shortest)

    def stop(self) -> None:
        super().stop()
        self.woken.set()

    def run(self) -> None:
        super().run()
        self.settle(FAREWELL)
        try:
            self._record()
        except HeadwayError as error:
            log.warning("deliverer: could not record the last deliveries: %s; they will be sent again", error)
        self.database.unwatch(self.waiter)

    def settle(self, seconds: float = LEASE) -> bool:
        """Waits until nothing is being sent. False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while self.sent.qsize() < len(self.at_work):  # checked first: the report may have arrived before the wait
            if not self.woken.wait(max(0.0, deadline - time.monotonic())):
                break
            self.woken.clear()
        return self.sent.qsize() >= len(self.at_work)

    # --- taking ---

    @property
    def at_work(self) -> dict[int, Receiver]:
        return self.turns.at_work

    def _room(self, waiting: WaitingReceiver, taken: Sequence[Leased] = ()) -> int:
        ordinary = [leased.receiver for leased in taken if not leased.ahead]
        return self.turns.room(waiting.receiver, self.database.clock.now(), ordinary)

    def _room_ahead(self, waiting: WaitingReceiver, taken: Sequence[Leased] = ()) -> bool:
        return waiting.ahead and self.turns.room_ahead(
            waiting.receiver, [leased.receiver for leased in taken if leased.ahead]
        )

    def _take_up(self, due: Sequence[WaitingReceiver]) -> list[Leased]:
        """Leases due deliveries and begins to send them.

        An error on the way, such as a lost answer to a commit, leaves leases under which nothing is sent.
        """
        before, self.unsure_until = self.unsure_until, time.monotonic() + LEASE
        leased = self._lease(due)
        self._begin(leased)
        self.unsure_until = before
        return leased

    def _return_unknown(self) -> None:
        """Returns leases of this process under which nothing was sent.

        It polls for the length of a lease, because the commit whose answer was lost may arrive late.
        """
        if time.monotonic() >= self.unsure_until:
            return
        with self.database.read() as tx:
            ours = {number for number, who in deliveries.leases(tx) if who == self.who}
        if unknown := ours - self.at_work.keys() - self.unreported:
            self.database.transact("return_deliveries", lambda tx: deliveries.give_back(tx, unknown, self.who))

    def _lease(self, due: Sequence[WaitingReceiver]) -> list[Leased]:
        if not any(self._room(waiting) > 0 or self._room_ahead(waiting) for waiting in due):
            return []
        return self.database.transact("lease_deliveries", lambda tx: self._take(tx, due))

    def _take(self, tx: Tx, due: Sequence[WaitingReceiver]) -> list[Leased]:
        tx.run("pin_plans")
        taken: list[Leased] = []
        for waiting in self.turns.order(due):
            room = self._room(waiting, taken)
            if room <= 0:
                continue
            if waiting.open:
                taken += deliveries.lease_probe(tx, self.who, waiting.endpoint_id, seconds=LEASE, actor=SYSTEM)
            elif waiting.endpoint_id:
                taken += deliveries.lease(tx, self.who, waiting.endpoint_id, limit=room, seconds=LEASE, actor=SYSTEM)
            else:
                taken += deliveries.lease_own(tx, self.who, waiting.receiver, limit=room, seconds=LEASE, actor=SYSTEM)
        for waiting in due:  # after the probes: lock order is endpoint, then delivery
            if self._room_ahead(waiting, taken):
                taken += deliveries.lease_ahead(tx, self.who, waiting.endpoint_id, seconds=LEASE, actor=SYSTEM)
        return taken

    def _free_the_dead(self) -> None:
        """Frees the leases of dead processes on this host before they expire."""
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
            log.warning("deliverer: %d deliveries of dead processes will be sent again", freed)

    def _is_dead(self, who: str) -> bool:
        host, boot, pid, start, _ = json.loads(who)
        return (host, boot) == self.here and not process_tree.alive(pid, start)

    # --- sending ---

    def _begin(self, leased: Sequence[Leased]) -> None:
        for prepared in self._prepared(self._rendered(leased)) if leased else []:
            self.unreported.discard(prepared.leased.delivery.id)
            self.turns.begin(prepared.leased.delivery.id, prepared.leased.receiver, ahead=prepared.leased.ahead)
            try:
                threading.Thread(target=self._deliver, args=(prepared,), name="headway-send", daemon=True).start()
            except RuntimeError:  # no more threads: its lease expires, and it is sent again
                self.sent.put((prepared.leased, None))

    def _rendered(self, leased: Sequence[Leased]) -> list[Leased]:
        """Returns each delivery with its body, which every attempt sends unchanged."""
        fresh = [lease for lease in leased if lease.delivery.body is None]
        if not fresh:
            return list(leased)
        with self.database.read() as tx:
            bodies = {lease.delivery.id: self._body(tx, lease.delivery) for lease in fresh}
        gone = [lease for lease in fresh if bodies[lease.delivery.id] is None]
        if gone:
            self.database.transact("fail_deliveries", lambda tx: deliveries.fail(tx, gone, GONE, SYSTEM))
        made = [
            (lease.delivery, f"msg_{secrets.token_hex(16)}", body)
            for lease in fresh
            if (body := bodies[lease.delivery.id]) is not None
        ]
        stored = self.database.transact("store_bodies", lambda tx: deliveries.store_bodies(tx, made)) if made else {}
        kept = [
            replace(lease, delivery=stored.get(lease.delivery.id, lease.delivery))
            for lease in leased
            if lease not in gone
        ]
        return [lease for lease in kept if lease.delivery.body is not None]

    def _body(self, tx: Tx, delivery: Delivery) -> str | None:
        found = tx.run("event_by_id", id=delivery.event_id)
        try:
            return self.render(tx, delivery, Event(*found[0])) if found else None
        except NotFound:
            return None

    def _prepared(self, leased: Sequence[Leased]) -> list[PreparedDelivery]:
        with self.database.read() as tx:
            receivers = endpoints.some(tx, {lease.delivery.endpoint_id for lease in leased} - {0})
            own = {lease.delivery.tenant_id for lease in leased if lease.delivery.endpoint_id == 0}
            signers = endpoints.signers(tx, own)
        for tenant_id in own - signers.keys():
            secret = make_secret(secrets.token_bytes(32))
            signers[tenant_id] = self.database.transact("make_signer", endpoints.make_signer, tenant_id, secret)
        made = []
        for lease in leased:
            receiver = receivers.get(lease.delivery.endpoint_id)
            if receiver is None:
                assert lease.delivery.url is not None
                made.append(PreparedDelivery(lease, lease.delivery.url, signers[lease.delivery.tenant_id]))
            else:
                signer = Signer(receiver.secret, receiver.old_secret, receiver.old_until)
                made.append(PreparedDelivery(lease, receiver.url, signer))
        return made

    def _deliver(self, prepared: PreparedDelivery) -> None:
        """Makes one attempt, in a thread of its own.

        If the thread fails, the lease expires and the delivery is sent again.
        """
        report = None
        try:
            report = self._try(prepared)
        finally:
            self.sent.put((prepared.leased, report))
            self.woken.set()

    def _try(self, prepared: PreparedDelivery) -> DeliveryReport:
        """Sends one request. An unexpected exception counts as a failed attempt.

        Otherwise the delivery would be retried for ever.
        """
        at, began = self.database.clock.now(), time.monotonic()
        request = http_client.Request(
            prepared.url, {}, (prepared.leased.delivery.body or "").encode("utf-8", "replace")
        )
        try:
            request = webhook_request.make_request(prepared, at)
            point("deliver.before_send")
            sent = self.send(request, self.guard)
            point("deliver.sent")
        except UNEXPECTED as error:
            log.exception("deliverer: delivery %d could not be sent", prepared.leased.delivery.id)
            reason = f"it could not be sent: {type(error).__name__}: {clean(str(error))[:200]}"
            sent = http_client.SentRequest(Outcome(None, reason))
        return webhook_request.report(prepared, request, sent, at, time.monotonic() - began)

    def _record(self) -> None:
        """Records the attempts that have ended since the last tick."""
        ended: list[tuple[Leased, DeliveryReport | None]] = []
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
                    "record_deliveries", lambda tx: deliveries.record(tx, reports, SYSTEM, dice.random)
                )
        except HeadwayError:
            away = True  # the database is unreachable: the reports are recorded later
            raise
        finally:
            for leased, report in ended:
                if away:
                    self.sent.put((leased, report))
                else:
                    self._end(leased, report)

    def _end(self, leased: Leased, report: DeliveryReport | None) -> None:
        self.turns.end(leased.delivery.id)
        if report is None:
            self.unreported.add(leased.delivery.id)
        else:
            self.turns.note(leased.receiver, report.outcome, self.database.clock.now())


def _identity(here: tuple[str, str]) -> str:
    """Returns the owner of a lease: this process, so that others see its death."""
    pid = os.getpid()
    return json.dumps([*here, pid, process_tree.start_time(pid) or 0, secrets.token_hex(4)], separators=(",", ":"))
