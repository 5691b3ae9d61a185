"""Runs user code in child processes, threads and event loops."""
