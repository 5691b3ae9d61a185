"""Headway: a durable job scheduler for long, expensive, exclusive jobs."""

__version__ = "0.1.0"
