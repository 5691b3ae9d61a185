"""The JSON of the API: request bodies, answers, and how both are read."""
