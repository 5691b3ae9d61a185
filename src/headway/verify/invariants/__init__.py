"""Invariants that can be checked without replaying all events."""
