"""Fields of webhooks, deliveries and tries."""

from __future__ import annotations

from headway.api.descriptions.field import Fields
from headway.api.descriptions.shared import AT

_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_WEBHOOK: Fields = {
    "webhook_id": ("The number of the webhook.", 2),
    "url": (
        "The address that receives the events. Viewers see it without path and query.",
        "https://example.org/hooks",
    ),
    "max_tries": ("How often a delivery is tried at most; the usual number is 4.", 4),
    "enabled": ("Whether the webhook receives anything.", True),
    "state": (
        "`closed`: deliveries are sent. `open`: the address failed repeatedly, and only the oldest delivery is "
        "tried. `disabled` by "
        "a person; `deleted`.",
        "closed",
    ),
    "reason": ("Why the webhook is open or disabled; null otherwise.", None),
    "failures": ("How many tries in a row failed.", 0),
    "opened_at": ("When repeated failures opened the webhook; null if it is closed.", None),
    "probe_at": ("When the oldest delivery is tried next; null if the webhook is closed.", None),
    "old_secret_until": ("Until when the secret before the last rotation signs too; null if there is none.", None),
    "secret": (
        "The secret that signs the deliveries. It is shown in this answer only; null if you gave your own.",
        _SECRET,
    ),
}
_DELIVERY: Fields = {
    "delivery_id": ("The number of the delivery.", 31),
    "event_id": ("The event that it reports; null for a test.", 205),
    "event": ("The kind of event.", "job.run.failed"),
    "webhook_id": ("The webhook that receives it; null for the `webhook_url` of a job.", 2),
    "endpoint_id": ("The former name of `webhook_id`. It goes with the next version of the API.", 2),
    "job_id": ("The job that it is about; null if it is about another thing.", 17),
    "url": ("The address of the job's `webhook_url`; null for a webhook.", None),
    "message_id": ("The id of the message, the same on every try (`webhook-id`).", "msg_205_2"),
    "status": ("PENDING, DELIVERED, FAILED, or CANCELLED with its webhook.", "DELIVERED"),
    "tries": ("How often it has been tried.", 1),
    "max_tries": ("How often it is tried at most.", 4),
    "next_try_at": ("When it is tried next; null if it has ended.", None),
    "last_status_code": ("The HTTP status of the last answer; null if there was none.", 200),
    "last_error": ("What went wrong at the last try; null if nothing did.", None),
    "delivered_at": ("When the receiver accepted it; null if it has not.", AT),
    "replay_of": ("The delivery whose message it sends again; null if it is none.", None),
    "attempts": ("The tries, the first one first.", None),
    "body": ("The body of the request; null until it is rendered.", '{"type":"job.run.failed"}'),
}

WEBHOOKS: dict[str, Fields] = {
    "Webhook": _WEBHOOK,
    "NewWebhook-Output": _WEBHOOK,
    "NewWebhook-Input": {
        **_WEBHOOK,
        "events": ("The kinds of event to send; null means all of them.", ["job.run.failed"]),
        "max_tries": ("How often a delivery is tried at most; null means 4.", 4),
        "secret": ("A secret of your own, `whsec_` and base64; null makes one.", _SECRET),
    },
    "WebhookEdit": {
        **_WEBHOOK,
        "events": ("The new kinds of event; null keeps them.", ["job.run.failed"]),
        "enabled": ("False stops deliveries; true starts them and tries pending ones at once.", True),
    },
    "Rotate": {"secret": ("A secret of your own; null makes one.", _SECRET)},
    "Secret": {"secret": ("The secret, `whsec_` and base64.", _SECRET)},
    "Delivery": _DELIVERY,
    "DeliveryWithTries": _DELIVERY,
    "Try": {
        "number": ("The number of the try, counted from 1.", 1),
        "seconds": ("How long the try took.", 0.12),
        "address": ("The network address that was connected to; null if none was.", "203.0.113.7"),
        "status_code": ("The HTTP status of the answer; null if there was none.", 200),
        "error": ("What went wrong; null if nothing did.", None),
        "request": ("The headers of the request.", {"webhook-id": "msg_205_2"}),
        "response": ("The headers and the beginning of the body of the answer; null if there was none.", None),
    },
}
