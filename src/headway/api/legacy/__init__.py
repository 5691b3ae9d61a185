"""The endpoints of the old API."""
