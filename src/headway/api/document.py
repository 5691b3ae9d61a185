"""`python -m headway.api.document` prints the OpenAPI document, as it is kept in `docs/openapi.json`."""

from __future__ import annotations

import json

from headway.api.app import build


def document() -> str:
    return json.dumps(build().openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(document(), end="")
