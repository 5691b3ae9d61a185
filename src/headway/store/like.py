"""Texts as LIKE takes them, with `escape '!'`."""

from __future__ import annotations


def literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def containing(text: str) -> str:
    """What has this text in it, whatever the case of a-z: SQLite lowers no other letters."""
    lowered = "".join(chr(ord(char) + 32) if "A" <= char <= "Z" else char for char in text)
    return f"%{literal(lowered)}%"
