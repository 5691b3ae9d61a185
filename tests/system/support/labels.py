"""The fault points of the source: every transaction has three, and some acts on the outside have one."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import headway

SOURCE = Path(headway.__file__).parent
OF_A_TRANSACTION = ("begun", "before_commit", "committed")
# What begins a transaction, or passes a point, with the place of its label among its arguments.
BEGINNERS = {
    "transact": 0,
    "transaction": 0,
    "repeat": 0,
    "once": 0,
    "point": 0,
    "_fenced": 0,
    "_change": 0,
    "change_job": 0,
    "_tenant_event": 3,
    "_on": 0,
    "create_once": 1,
}
# The seam itself passes on what its callers name, and so do these; whoever adds one adds its callers above.
SEAM = {"store/db.py", "store/sqlite/database.py", "store/postgres/database.py", "store/postgres/transaction.py"}
PASSING_ON = {
    "engine/worker/sink.py": {"_fenced"},
    "engine/client/client.py": {"change_job", "transact"},
    "engine/client/pause.py": {"_tenant_event"},
    "engine/client/schedules.py": {"_change", "_on"},
    "store/postgres/row_security.py": {"once"},
    "engine/client/tenants.py": {"_change"},
    "engine/client/idempotency.py": {"create_once", "run"},
}
# Two databases take part in a promotion: its own tests kill it at its points, and look that they miss none.
PROMOTION = {"cli/database/promote.py", "store/transfer/copy.py", "store/transfer/destination.py"}
# The checker only reads, and so does `headway doctor`.
LOOKING = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "verify").glob("*.py")} | {
    "store/postgres/read_only.py"
}
# Only PostgreSQL needs to be told.
POSTGRES_ONLY = {"notify_others.begun", "notify_others.committed"}


def labels(only: Collection[str] = ()) -> tuple[set[str], set[str]]:
    """The points that every database passes, and those of statements that are a transaction by themselves. Of the files
    `only`, or of all that the scripts can pass."""
    whole: set[str] = set()
    alone: set[str] = set()
    every = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")} - LOOKING - PROMOTION
    for path in sorted(SOURCE / name for name in only or every):
        for beginner, label in _calls(path):
            if beginner == "point":
                whole.add(label)
            elif beginner == "once":
                alone |= {f"{label}.begun", f"{label}.committed"}
            else:
                whole |= {f"{label.replace('.', '_')}.{end}" for end in OF_A_TRANSACTION}
    return whole, alone


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    name = path.relative_to(SOURCE).as_posix()
    for function, call in _in_functions(ast.parse(path.read_text())):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called not in BEGINNERS or len(call.args) <= BEGINNERS[called]:
            continue
        label = call.args[BEGINNERS[called]]
        if isinstance(label, ast.Constant) and isinstance(label.value, str):
            yield called, label.value
        else:
            where = f"{name}:{call.lineno}"
            known = name in SEAM or function in PASSING_ON.get(name, ())
            assert known, f"{where}: a label that cannot be read from the source"


def _in_functions(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield function, node
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _in_functions(node, inner)
