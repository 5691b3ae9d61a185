"""Declaring tasks and plans, and handles on jobs."""
