"""The OpenAPI document. `python -m headway.api.openapi` prints docs/openapi.json."""

from __future__ import annotations

import json
from collections.abc import Collection

from fastapi import FastAPI

# Addresses under which other applications mount this one; a proxy that invents them must not fill the memory.
MOST_ROOTS = 8


class Documents:
    """The document as bytes, rendered once for each kind of caller.

    Paths that tasks declare are named only to callers that may call them.
    """

    def __init__(self) -> None:
        self.own_paths: Collection[str] = frozenset()
        self._rendered: dict[tuple[str, bool], bytes] = {}

    def text(self, app: FastAPI, root: str, calls: bool) -> bytes:
        """Returns the document for a caller; `calls` means that it may call tasks."""
        key = (root, calls)
        if key not in self._rendered:
            if len(self._rendered) >= 2 * MOST_ROOTS:
                self._rendered.clear()
            self._rendered[key] = self._render(app, root, calls)
        return self._rendered[key]

    def _render(self, app: FastAPI, root: str, calls: bool) -> bytes:
        document = {**app.openapi(), **({"servers": [{"url": root}]} if root else {})}
        if not calls:
            paths = document["paths"].items()
            document["paths"] = {path: item for path, item in paths if path not in self.own_paths}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def document() -> str:
    from headway.api.app import build

    return json.dumps(build().openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(document(), end="")
