"""Commands on a server: what they ask of a database, asked over HTTP."""
