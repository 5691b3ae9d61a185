"""Stores webhooks and deliveries."""
