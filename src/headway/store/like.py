"""Escapes text for LIKE patterns with `escape '!'`."""

from __future__ import annotations


def literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def containing(text: str) -> str:
    """Returns a pattern for values that contain this text, ignoring the case of a-z.

    Other letters keep their case, because SQLite lowers only a-z.
    """
    lowered = "".join(chr(ord(char) + 32) if "A" <= char <= "Z" else char for char in text)
    return f"%{literal(lowered)}%"
