"""Sentences for people, one module per noun. Pure: this package decides nothing."""
