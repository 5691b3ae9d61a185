"""Storage: the only package that contains SQL."""
