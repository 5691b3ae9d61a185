"""The storage interface on SQLite."""
