"""The contract of the HTTP API, the part of the OpenAPI document that clients rely on, and the changes that break it.

`python -m scripts.api_contract` prints the contract of this checkout. At a release it becomes docs/api/VERSION.json;
from then on a test compares the API with the newest of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Contract = dict[str, Any]
Schema = dict[str, Any]
RELEASES = Path(__file__).parents[1] / "docs" / "api"
_REFERENCE = "#/components/schemas/"
_JSON = "application/json"


def contract_of(document: dict[str, Any]) -> Contract:
    """Returns operations with their parameters, and classes with their fields: names, types, what is required."""
    schemas = document["components"]["schemas"]
    operations = {
        f"{method.upper()} {path}": _operation(operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    return {
        "version": document["info"]["version"],
        "operations": operations,
        "asked": {name: _fields(schemas[name]) for name in _reachable(operations, "body", schemas)},
        "answered": {name: _fields(schemas[name]) for name in _reachable(operations, "answer", schemas)},
    }


def _operation(operation: Schema) -> Schema:
    body = operation.get("requestBody", {})
    done = {status: answer for status, answer in operation["responses"].items() if status.startswith("2")}
    return {
        "parameters": {
            f"{one['in']} {one['name']}": {**_type(one["schema"]), "required": bool(one.get("required"))}
            for one in operation.get("parameters", ())
        },
        "body": _type(body.get("content", {}).get(_JSON, {}).get("schema", {}))["types"],
        "answer": {
            status: _type(answer.get("content", {}).get(_JSON, {}).get("schema", {}))["types"]
            for status, answer in done.items()
        },
    }


def _fields(schema: Schema) -> dict[str, Schema]:
    required = schema.get("required", ())
    return {
        name: {**_type(field), "required": name in required} for name, field in schema.get("properties", {}).items()
    }


def _type(schema: Schema) -> Schema:
    """Returns the types that a value may have, and the values if they are listed."""
    parts = [part for choice in ("anyOf", "oneOf", "allOf") for part in schema.get(choice, ())] or [schema]
    types = sorted({_name(part) for part in parts})
    values = sorted({str(value) for part in parts for value in part.get("enum", ())})
    return {"types": types, **({"values": values} if values else {})}


def _name(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    if schema.get("type") == "array":
        return f"array of {' | '.join(_type(schema.get('items', {}))['types'])}"
    return str(schema.get("type", "any"))


def _reachable(operations: dict[str, Schema], part: str, schemas: dict[str, Schema]) -> list[str]:
    """Returns the classes that bodies or answers consist of."""
    used = [name for operation in operations.values() for name in _named(operation[part])]
    seen: set[str] = set()
    while used:
        name = used.pop()
        if name in schemas and name not in seen:
            seen.add(name)
            used += [found for field in _fields(schemas[name]).values() for found in _named(field["types"])]
    return sorted(seen)


def _named(types: Any) -> Iterator[str]:
    for one in [name for names in types.values() for name in names] if isinstance(types, dict) else types:
        yield from one.removeprefix("array of ").split(" | ")


# --- breaking changes -----------------------------------------------------------------------------------------------


def breaking(old: Contract, new: Contract) -> list[str]:
    """Returns a line for each change after which a client of the old contract may fail."""
    found = list(_removed("operation", old["operations"], new["operations"]))
    for name in old["operations"].keys() & new["operations"].keys():
        before, after = old["operations"][name], new["operations"][name]
        found += _narrowed(name, before["parameters"], after["parameters"])
        found += [f"{name}: the body is {after['body']}"] if before["body"] != after["body"] else []
        found += [
            f"{name}: {status} answers {after['answer'].get(status)}"
            for status, types in before["answer"].items()
            if after["answer"].get(status) != types
        ]
    for name in old["asked"].keys() & new["asked"].keys():
        found += _narrowed(name, old["asked"][name], new["asked"][name])
    for name in old["answered"].keys() & new["answered"].keys():
        found += _widened(name, old["answered"][name], new["answered"][name])
    return sorted(found)


def _removed(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    yield from (f"{kind} {name} is gone" for name in old.keys() - new.keys())


def _narrowed(place: str, old: dict[str, Schema], new: dict[str, Schema]) -> Iterator[str]:
    """Compares fields that clients send: nothing may go, nothing may become required, no type or value may go."""
    yield from (f"{place}.{name} is gone" for name in old.keys() - new.keys())
    yield from (f"{place}.{name} is new and required" for name in new.keys() - old.keys() if new[name]["required"])
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if after["required"] and not before["required"]:
            yield f"{place}.{name} became required"
        lost = _lost(before, after)
        if lost:
            yield f"{place}.{name} no longer takes {', '.join(lost)}"


def _widened(place: str, old: dict[str, Schema], new: dict[str, Schema]) -> Iterator[str]:
    """Compares fields that clients read: no field may go, no type may come. New values of a list may come."""
    yield from (f"{place}.{name} is gone" for name in old.keys() - new.keys())
    for name in old.keys() & new.keys():
        before, after = old[name], new[name]
        if before["required"] and not after["required"]:
            yield f"{place}.{name} may be missing"
        more = sorted(set(after["types"]) - set(before["types"]))
        if more and "any" not in before["types"]:
            yield f"{place}.{name} may be {', '.join(more)}"


def _lost(before: Schema, after: Schema) -> list[str]:
    if "any" in after["types"]:
        return []
    types = sorted(set(before["types"]) - set(after["types"]))
    values = sorted(set(before.get("values", ())) - set(after["values"])) if "values" in after else []
    closed = ["other values"] if "values" in after and "values" not in before else []
    return types + values + closed


def released() -> Contract:
    """Returns the contract of the newest release."""

    def version(path: Path) -> tuple[int, ...]:
        return tuple(map(int, path.stem.split(".")))

    contract: Contract = json.loads(max(RELEASES.glob("*.json"), key=version).read_text("utf-8"))
    return contract


if __name__ == "__main__":
    from headway.api.openapi import document

    print(json.dumps(contract_of(json.loads(document())), indent=1, sort_keys=True))
