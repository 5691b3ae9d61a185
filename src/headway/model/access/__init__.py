"""Roles, permissions, credentials and tenants."""
