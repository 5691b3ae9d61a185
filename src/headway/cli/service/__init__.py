"""Writes service files for systemd and launchd."""
