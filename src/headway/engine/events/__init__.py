"""The stream of events and its subscribers."""
