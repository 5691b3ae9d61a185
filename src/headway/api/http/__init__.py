"""Shared parts of all endpoints: routing, authentication, problems, streams."""
