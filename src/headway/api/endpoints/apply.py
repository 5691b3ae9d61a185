"""`/api/apply`: applies a file of templates, schedules, targets and webhooks."""

from __future__ import annotations

from fastapi import Response

from headway.api.http.routing import Here, Routes, answer
from headway.api.schemas.system import AppliedSchema, ApplyBody, applied_json
from headway.engine.client.apply import plan
from headway.engine.client.client import Client
from headway.model import manifest
from headway.model.access.permissions import Role

routes = Routes("apply")


@routes.post("/api/apply", Role.ADMIN, long=True, answer=AppliedSchema, creates=True)
def apply(here: Here, body: ApplyBody) -> Response:
    """Bring templates, schedules, targets and webhooks to the state in a file.

    Things that the file does not name stay as they are.
    """

    def work(client: Client) -> tuple[Response, Response]:
        planned = plan(client, manifest.read(body.text, body.file), body.file)
        secrets = {} if body.dry_run else planned.run()
        shown, kept = (applied_json(planned, visible, applied=not body.dry_run) for visible in (secrets, {}))
        return answer(shown), answer(kept)

    return here.do_once(work, body.model_dump())
