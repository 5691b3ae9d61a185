"""The files that jobs left behind: `/api/jobs/{id}/artifacts`. They are sent as they are, never shown as a page."""

from __future__ import annotations

import os

from fastapi import Response
from starlette.responses import FileResponse

from headway.api.asking import JobId
from headway.api.routes import Here, Routes, answer
from headway.api.wire import answers, answers_system
from headway.api.wire.system import artifact_json
from headway.errors import NotFound
from headway.store import reading

routes = Routes("files")
# Whatever a job wrote: a browser that opens it after all runs nothing of it.
_GUARDS = {"Content-Security-Policy": "sandbox; default-src 'none'"}


@routes.get("/api/jobs/{job_id}/artifacts", answer=answers.Page[answers_system.Artifact])
def ls(here: Here, job_id: JobId) -> Response:
    """List the files a job left behind."""
    here.client.get(job_id)
    with here.read() as tx:
        found = reading.artifacts(tx, job_id)
    return answer({"items": [artifact_json(one) for one in found], "next": None})


@routes.get("/api/jobs/{job_id}/artifacts/{name:path}", also={200: "The file", 410: "The file is gone"})
def download(here: Here, job_id: JobId, name: str) -> Response:
    """Get a file that a job left behind."""
    here.client.get(job_id)
    with here.read() as tx:
        one = next((one for one in reading.artifacts(tx, job_id) if one.name == name), None)
    if one is None:
        raise NotFound(f"job {job_id} left no file {name!r}")
    path = here.service.terms.artifacts / one.path
    try:
        found = os.stat(path)
    except FileNotFoundError:
        text = f"the file {name!r} of job {job_id} is not in the artifacts folder of this server: it was removed, or"
        raise NotFound(f"{text} written on another machine", code="gone") from None
    headers = {**_GUARDS, "ETag": f'"{one.sha256}"'}
    base = name.rpartition("/")[2] or "artifact"
    return FileResponse(path, 200, headers, "application/octet-stream", filename=base, stat_result=found)
