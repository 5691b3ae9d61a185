"""`/api/jobs/{id}/artifacts`: the files of jobs, sent as downloads."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Response
from starlette.responses import FileResponse

from headway.api.http.query import JobId
from headway.api.http.routing import Here, Routes, answer
from headway.api.schemas.common import PageSchema
from headway.api.schemas.system import ArtifactSchema, artifact_json
from headway.engine.execution.artifacts import place_of
from headway.errors import NotFound
from headway.store.jobs import views as job_views

routes = Routes("files")
# A job may have written anything; with this policy a browser that opens the file runs no script in it.
_GUARDS = {"Content-Security-Policy": "sandbox; default-src 'none'"}


@routes.get("/api/jobs/{job_id}/artifacts", answer=PageSchema[ArtifactSchema])
def ls(here: Here, job_id: JobId) -> Response:
    """List the files of a job."""
    here.client.get(job_id)
    with here.read() as tx:
        found = job_views.artifacts(tx, job_id)
    return answer({"items": [artifact_json(artifact) for artifact in found], "next": None})


# Longer than any name of a file.
MOST_NAME = 1_000


@routes.get("/api/jobs/{job_id}/artifacts/{name:path}", also={200: "The file", 410: "The file is gone"})
def download(here: Here, job_id: JobId, name: Annotated[str, PathParameter(max_length=MOST_NAME)]) -> Response:
    """Download a file of a job."""
    here.client.get(job_id)
    with here.read() as tx:
        artifact = next((row for row in job_views.artifacts(tx, job_id) if row.name == name), None)
    if artifact is None:
        raise NotFound(f"job {job_id} has no file {name!r}")
    path = place_of(here.service.terms.artifacts, artifact.path)
    found = None if path is None else _file(path)
    if path is None or found is None:
        text = f"the file {name!r} of job {job_id} is not in the artifacts folder of this server: it was removed, or"
        raise NotFound(f"{text} written on another machine", code="gone")
    headers = {**_GUARDS, "ETag": f'"{artifact.sha256}"'}
    base = name.rpartition("/")[2] or "artifact"
    return FileResponse(path, 200, headers, "application/octet-stream", filename=base, stat_result=found)


def _file(path: Path) -> os.stat_result | None:
    """Returns the status of a plain file; None if there is none. A link is never followed."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None
