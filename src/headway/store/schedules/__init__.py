"""Stores schedules and ticks."""
