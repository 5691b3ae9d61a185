"""Moves an installation from SQLite to PostgreSQL."""
