"""What things are called on the wire: the only place where field names of the API exist."""
