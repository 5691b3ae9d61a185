"""Checked input values."""
