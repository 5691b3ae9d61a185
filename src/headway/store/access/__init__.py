"""Stores tokens, sessions and tenants."""
