"""The HTTP service.

It holds no rules of its own; it calls the client and reads the store.
"""
