"""Creates groups and batches of jobs in the local database, from the same bodies that the API takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from headway.api.endpoints.jobs import group_of, new_jobs, refuse_steps
from headway.api.schemas.groups import NewGroupBody
from headway.api.schemas.jobs import NewBatchBody
from headway.cli.output import Json
from headway.engine.client.client import Client
from headway.errors import BadInput

B = TypeVar("B", bound=BaseModel)


class _Untraced:
    trace: Mapping[str, Any] = {}


HERE = _Untraced()


def create_group(client: Client, body: Json) -> int:
    wanted = _checked(NewGroupBody, body)
    return client.groups.create(group_of(HERE, client, wanted, [job.given() for job in wanted.jobs]))


def create_jobs(client: Client, body: Json) -> tuple[int | None, list[int]]:
    """Returns the number of the group, or None without a mode, and the numbers of independent jobs."""
    wanted = _checked(NewBatchBody, body)
    members = [job.given() for job in wanted.jobs]
    if wanted.mode is not None:
        return client.groups.create(group_of(HERE, client, wanted, members)), []
    refuse_steps(members, wanted)
    return None, [job_id for job_id, _ in client.enqueue_many(new_jobs(HERE, client, members))]


def _checked(kind: type[B], body: Json) -> B:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BadInput(f"{field or 'the file'}: {first['msg']}", field=field or "file") from None
