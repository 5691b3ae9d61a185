"""Health checks, readiness and metrics."""
