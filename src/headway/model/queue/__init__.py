"""Which job runs next: order, lanes, targets, reservations."""
