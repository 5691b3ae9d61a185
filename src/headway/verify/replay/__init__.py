"""Invariants that need a replay of all events."""
