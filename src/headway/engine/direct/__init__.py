"""Direct calls and the reservations they hold."""
