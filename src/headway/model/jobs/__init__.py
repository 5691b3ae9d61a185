"""Jobs, their states and the actions on them."""
