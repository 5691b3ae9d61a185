"""How fast Headway is, side by side with its peers and with what the databases themselves can do."""
