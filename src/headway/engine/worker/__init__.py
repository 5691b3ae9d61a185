"""The worker: claims jobs, renews its lease, records how jobs ended."""
