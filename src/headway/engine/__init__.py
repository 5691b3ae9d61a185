"""The moving parts: model and store and time."""
