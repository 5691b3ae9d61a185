"""Deciding ticks and firing schedules."""
