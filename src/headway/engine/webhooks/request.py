"""Makes the signed request of a delivery, and the report of its attempt."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

from standardwebhooks import Webhook

from headway import __version__
from headway.clock import SECOND, micros
from headway.engine.webhooks import http_client
from headway.model.webhooks.webhook import Try
from headway.store.webhooks.deliveries import DeliveryReport, Leased
from headway.store.webhooks.endpoints import Signer


@dataclass(frozen=True, slots=True)
class PreparedDelivery:
    """A leased delivery with its body, its URL and its signer."""

    leased: Leased
    url: str
    signer: Signer = field(repr=False)


def make_request(prepared: PreparedDelivery, at: int) -> http_client.Request:
    """Returns the signed request of an attempt.

    Id and bytes are the same on every attempt; time and signatures are new.
    """
    delivery = prepared.leased.delivery
    assert delivery.body is not None
    assert delivery.message_id is not None
    when = datetime.fromtimestamp(at // SECOND, UTC)
    signatures = (
        Webhook(secret).sign(msg_id=delivery.message_id, timestamp=when, data=delivery.body)
        for secret in prepared.signer.secrets(at)
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
    return http_client.Request(prepared.url, headers, delivery.body.encode())


def report(
    prepared: PreparedDelivery, request: http_client.Request, sent: http_client.SentRequest, at: int, took: float
) -> DeliveryReport:
    shown = {name: value for name, value in request.headers.items() if name != "webhook-signature"}
    tried = Try(
        number=0,
        at=at,
        took=micros(took),
        status_code=sent.outcome.status_code,
        error=sent.outcome.error,
        address=sent.address,
        message_id=prepared.leased.delivery.message_id or "",
        digest=hashlib.sha256(request.body).hexdigest(),
        request=json.dumps({"url": request.url, "headers": shown}),
        response=sent.response,
    )
    return DeliveryReport(prepared.leased, sent.outcome, tried)
