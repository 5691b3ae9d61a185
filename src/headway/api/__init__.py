"""The HTTP service: it decides nothing itself, it calls the client and the reading functions."""
