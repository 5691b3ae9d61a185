"""The dashboard: pages that show jobs and schedules, and forms that change them."""
