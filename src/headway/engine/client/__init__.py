"""The verbs of a client: each is one transaction."""
