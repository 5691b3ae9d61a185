"""Schedules, cron expressions and ticks."""
