"""One contender in a process of its own: `python -m benchmarks.child REQUEST ANSWER`, both JSON files."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    function = getattr(importlib.import_module(request["module"]), request["function"])
    try:
        result = function(*request["urls"], **request["settings"])
    except NotImplementedError as error:
        return {"status": "not built", "detail": str(error)}
    except Exception as error:  # the contender's code: whatever it raised belongs in the table
        traceback.print_exc()
        return {"status": "error", "detail": f"{type(error).__name__}: {error}"}
    reading = result if isinstance(result, dict) else {"rate": result}
    return {"status": "ok", "reading": reading}


def main() -> None:
    request, reply = Path(sys.argv[1]), Path(sys.argv[2])
    reply.write_text(json.dumps(answer(json.loads(request.read_text()))))


if __name__ == "__main__":
    main()
