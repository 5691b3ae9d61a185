"""Stores groups and executions."""
