"""Stores jobs, their reports and their history."""
