"""What tests and benchmarks share: a place in memory, a PostgreSQL of their own. Needs no pytest."""
