"""The built-in kinds of task."""
