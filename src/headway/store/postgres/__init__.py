"""The storage interface on PostgreSQL."""
