"""The meaning of each field of the API, with an example: the sentences of the OpenAPI document.

They stand beside the classes of `api/schemas`, not in them: there a field is a line of code, here it is a sentence for
people. A test fails on a field without a sentence, without an example, and on a sentence without a field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.api.descriptions.access import ACCESS
from headway.api.descriptions.field import Fields
from headway.api.descriptions.groups import GROUPS
from headway.api.descriptions.jobs import JOBS
from headway.api.descriptions.legacy import LEGACY
from headway.api.descriptions.parameters import PARAMETERS
from headway.api.descriptions.queue import QUEUE
from headway.api.descriptions.schedules import SCHEDULES
from headway.api.descriptions.shared import SHARED
from headway.api.descriptions.system import SYSTEM
from headway.api.descriptions.webhooks import WEBHOOKS

BY_CLASS: dict[str, Fields] = JOBS | QUEUE | GROUPS | SCHEDULES | WEBHOOKS | ACCESS | SYSTEM | LEGACY
_REFERENCE = "#/components/schemas/"
_DEEPEST = 3  # of an example that is made of the examples of other classes


def describe(document: dict[str, Any]) -> None:
    """Adds a description and an example to each field and parameter of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    for name, field, schema in _fields(schemas):
        found = BY_CLASS.get(name, {}).get(field) or SHARED.get(field)
        if found is not None:
            schema.setdefault("description", found[0])
            if found[1] is not None:
                schema.setdefault("examples", [found[1]])
    for _, _, schema in _fields(schemas):
        if "examples" not in schema:
            schema["examples"] = [_example(schema, schemas, _DEEPEST)]
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in PARAMETERS:
                    parameter.setdefault("description", PARAMETERS[parameter["name"]])


def _fields(schemas: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, schema in schemas.items():
        for field, facts in schema.get("properties", {}).items():
            yield name, field, facts


def _example(schema: dict[str, Any], schemas: dict[str, Any], deepest: int) -> Any:
    """Builds an example from the examples of the referenced class; null where the field may be null."""
    if examples := schema.get("examples"):
        return examples[0]
    if "default" in schema:
        return schema["default"]
    if reference := schema.get("$ref"):
        fields = schemas[reference.removeprefix(_REFERENCE)].get("properties", {})
        return {field: _example(facts, schemas, deepest - 1) for field, facts in fields.items()} if deepest else {}
    if schema.get("type") == "array":
        return [_example(schema["items"], schemas, deepest - 1)] if deepest > 1 else []
    return None


__all__ = ["BY_CLASS", "PARAMETERS", "SHARED", "describe"]
