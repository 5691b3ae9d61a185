"""Backends of the commands: a local database, or a server over HTTP."""
