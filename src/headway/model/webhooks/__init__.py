"""Webhooks and the addresses they may reach."""
