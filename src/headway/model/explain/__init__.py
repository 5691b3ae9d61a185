"""Why a job waits, and when it may start."""
