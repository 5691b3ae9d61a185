"""Stores claims, lanes, targets and reservations."""
