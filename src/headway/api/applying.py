"""`/api/apply`: a whole file of templates, schedules, targets and webhooks at once."""

from __future__ import annotations

from fastapi import Response

from headway.api.routes import Here, Routes, answer
from headway.api.wire import answers_system
from headway.api.wire import bodies_access as bodies
from headway.api.wire.system import applied_json
from headway.engine.applying import plan
from headway.engine.client import Client
from headway.model import manifest
from headway.model.access import Role

routes = Routes("apply")


@routes.post("/api/apply", Role.ADMIN, answer=answers_system.Applied, creates=True)
def apply(here: Here, body: bodies.Apply) -> Response:
    """Bring templates, schedules, targets and webhooks to what a file says. What it does not name stays as it is."""

    def work(client: Client) -> tuple[Response, Response]:
        found = plan(client, manifest.read(body.text, body.file), body.file)
        secrets = {} if body.dry_run else found.run()
        shown, kept = (applied_json(found, told, applied=not body.dry_run) for told in (secrets, {}))
        return answer(shown), answer(kept)

    return here.do_once(work, body.model_dump())
