"""The OpenAPI document: checked in, whole, with a role for every route and an example for every body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from headway.api.app import NOUNS, build
from headway.api.descriptions import BY_CLASS, PARAMETERS, SHARED
from headway.api.openapi import document

KEPT = Path(__file__).parents[2] / "docs" / "openapi.json"
OPERATIONS = [
    (path, method, operation)
    for path, methods in build().openapi()["paths"].items()
    for method, operation in methods.items()
]


def test_the_document_is_the_one_that_is_checked_in() -> None:
    """After a change of the API: `python -m headway.api.openapi > docs/openapi.json`, and look at the difference."""
    assert document() == KEPT.read_text("utf-8")


def test_it_is_openapi_3_1_and_every_operation_has_a_name_of_its_own() -> None:
    found = json.loads(document())
    assert found["openapi"].startswith("3.1.")
    names = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("path", "method", "operation"), OPERATIONS, ids=lambda one: one if isinstance(one, str) else ""
)
def test_every_operation_says_its_role_its_summary_and_its_problems(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    assert operation["x-role"] in ("public", "viewer", "operator", "admin")
    assert operation["summary"]
    problem = {"$ref": "#/components/schemas/Problem"}
    assert operation["responses"]["422"]["content"]["application/problem+json"]["schema"] == problem
    done = [status for status in operation["responses"] if status.startswith("2")]
    assert done, f"{method} {path} never succeeds"


def test_every_body_has_an_example() -> None:
    schemas = json.loads(document())["components"]["schemas"]
    bodies = set()
    for _, _, operation in OPERATIONS:
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        references = [schema, *schema.get("anyOf", ())]
        bodies |= {one["$ref"].rpartition("/")[2] for one in references if "$ref" in one}
    without = [name for name in bodies if not _example(schemas[name])]
    assert without == []


def _example(schema: dict[str, Any]) -> bool:
    """Of the whole body, or of each of its fields; a body whose fields all speak for themselves needs none."""
    fields = schema.get("properties", {}).values()
    return bool(schema.get("examples")) or not any("$ref" in json.dumps(one) for one in fields)


SCHEMAS = json.loads(document())["components"]["schemas"]
FIELDS = [(name, field) for name, schema in SCHEMAS.items() for field in schema.get("properties", {})]


def test_every_field_and_parameter_is_described() -> None:
    """`headway.api.descriptions` has the sentences: add the one of a new field there."""
    assert [place for place in FIELDS if not SCHEMAS[place[0]]["properties"][place[1]].get("description")] == []
    parameters = [(path, one) for path, _, operation in OPERATIONS for one in operation.get("parameters", ())]
    assert [(path, one["name"]) for path, one in parameters if not one.get("description")] == []


def test_every_field_has_an_example_that_fits_it() -> None:
    wrong = []
    for name, field in FIELDS:
        schema = SCHEMAS[name]["properties"][field]
        validator = jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": SCHEMAS}})
        if not all(validator.is_valid(example) for example in schema.get("examples") or [object]):
            wrong.append((name, field))
    assert wrong == []


def test_no_sentence_is_left_of_a_field_that_is_gone() -> None:
    assert [name for name in BY_CLASS if name not in SCHEMAS] == []
    known = {field for _, field in FIELDS}
    assert [field for fields in (SHARED, *BY_CLASS.values()) for field in fields if field not in known] == []
    names = {one["name"] for _, _, operation in OPERATIONS for one in operation.get("parameters", ())}
    assert sorted(set(PARAMETERS) - names) == []


# Lists and texts with these words in their schemas are bounded by what they may be.
BOUNDED = {"maxLength", "enum", "const", "pattern", "format"}


def unbounded(schema: dict[str, Any], where: str, schemas: dict[str, Any], seen: set[str]) -> Iterator[str]:
    """Every text and list in a schema that may have any length."""
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and name not in seen:
        seen.add(name)
        yield from unbounded(schemas[name], name, schemas, seen)
    kind = schema.get("type")
    if (kind == "string" and not BOUNDED & set(schema)) or (kind == "array" and "maxItems" not in schema):
        yield where
    within = [part for word in ("anyOf", "oneOf", "allOf") for part in schema.get(word, ())]
    within += [schema["items"]] if "items" in schema else []
    for part in within:
        yield from unbounded(part, where, schemas, seen)
    for field, part in schema.get("properties", {}).items():
        yield from unbounded(part, f"{where}.{field}", schemas, seen)


def test_every_text_and_list_that_a_caller_gives_has_a_bound() -> None:
    """The attack: 2,300 kinds in one query were compared with each event, under the lock of all streams."""
    schemas, seen = json.loads(document())["components"]["schemas"], set[str]()
    found: list[str] = []
    for path, method, operation in OPERATIONS:
        where = f"{method} {path}"
        for one in operation.get("parameters", ()):
            found += unbounded(one["schema"], f"{where} {one['name']}", schemas, seen)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            found += unbounded(content.get("schema", {}), where, schemas, seen)
    assert found == []


def test_nouns_are_mounted_once() -> None:
    declared = [(one.method, one.path) for noun in NOUNS for one in noun.declared]
    assert len(declared) == len(set(declared))
