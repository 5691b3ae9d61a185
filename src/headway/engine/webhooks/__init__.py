"""Delivering webhooks."""
