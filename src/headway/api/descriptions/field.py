"""The type of a described field: its sentence and an example.

The example is None where it follows from the fields of another class.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, tuple[str, Any]]
