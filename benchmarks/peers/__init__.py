"""The peers, one module each. Their libraries are imported inside the functions, so that none of them is required."""
