"""Recovery and retention."""
