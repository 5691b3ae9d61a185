"""A process that makes one direct call and says what came of it: `calls.py TASK FILE`, with HEADWAY_DATABASE."""

from __future__ import annotations

import sys

from tests.system.support.program import app

if __name__ == "__main__":
    print(app.direct(sys.argv[1], {"file": sys.argv[2]}), flush=True)
