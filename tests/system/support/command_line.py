"""The command `headway` with shorter waits: `command_line.py '{"STUCK_AFTER": 1}' work …`. It may run itself again."""

from __future__ import annotations

import json
import sys

from headway.cli.main import main
from headway.engine.worker import claim_strategy, execution_pool, start_pause, worker

if __name__ == "__main__":
    for name, value in json.loads(sys.argv.pop(1)).items():
        (module,) = (m for m in (worker, execution_pool, start_pause, claim_strategy) if hasattr(m, name))
        setattr(module, name, value)
    sys.exit(main())
