"""A delivery as it is sent: where it goes, what it says, what signs it; and what is kept of how that went."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from standardwebhooks import Webhook

from headway import __version__
from headway.clock import SECOND, micros
from headway.engine import sending
from headway.model.webhooks import Try
from headway.store.deliveries import Leased, Report
from headway.store.endpoints import Signer


@dataclass(frozen=True, slots=True)
class Letter:
    """A leased delivery with its body, where it goes, and what signs it."""

    leased: Leased
    url: str
    signer: Signer = field(repr=False)


def make_request(letter: Letter, at: int) -> sending.Request:
    """The same id and bytes on every try; the time, and so the signatures, are the try's own."""
    delivery = letter.leased.delivery
    assert delivery.body is not None
    assert delivery.message_id is not None
    when = datetime.fromtimestamp(at // SECOND, UTC)
    signatures = (
        Webhook(secret).sign(msg_id=delivery.message_id, timestamp=when, data=delivery.body)
        for secret in letter.signer.secrets(at)
    )
    headers = {
        "User-Agent": f"headway/{__version__}",
        "Content-Type": "application/json",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(at // SECOND),
        "webhook-signature": " ".join(signatures),
        "X-Job-Event": delivery.event,
        **({"X-Job-ID": str(delivery.job_id)} if delivery.job_id is not None else {}),
    }
    return sending.Request(letter.url, headers, delivery.body.encode())


def report(letter: Letter, request: sending.Request, sent: sending.Sent, at: int, took: float) -> Report:
    shown = {name: value for name, value in request.headers.items() if name != "webhook-signature"}
    tried = Try(
        number=0,
        at=at,
        took=micros(took),
        status_code=sent.outcome.status_code,
        error=sent.outcome.error,
        address=sent.address,
        message_id=letter.leased.delivery.message_id or "",
        digest=hashlib.sha256(request.body).hexdigest(),
        request=json.dumps({"url": request.url, "headers": shown}),
        response=sent.response,
    )
    return Report(letter.leased, sent.outcome, tried)
