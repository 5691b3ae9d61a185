"""A program of its own that delivers webhooks until it is killed, or until nothing is on its way any more.

`sender.py '{"hook.example": "127.0.0.1"}' DEADLINE`: its database is in HEADWAY_DATABASE, and HEADWAY_TEST_FAULT says
where it dies. The names it knows are those it is given.
"""

from __future__ import annotations

import json
import os
import sys

from headway.api.schemas.webhooks import render
from headway.engine.webhooks.deliverer import Deliverer
from headway.engine.webhooks.http_client import Guard
from headway.fault_points import arm_from_environment
from headway.store.db import open_database
from headway.store.webhooks import receivers


def main(names: dict[str, str], deadline: float) -> int:
    arm_from_environment()
    database = open_database(os.environ["HEADWAY_DATABASE"])
    guard = Guard(allow_private=True, deadline=deadline, resolve=lambda host, _: [names.get(host, host)])
    deliverer = Deliverer(database, render=render, guard=guard)
    on_its_way = True
    while on_its_way:
        deliverer.wait(min(deliverer.safely(), 0.2))
        with database.read() as tx:
            on_its_way = bool(receivers.waiting(tx))
    database.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), float(sys.argv[2])))
