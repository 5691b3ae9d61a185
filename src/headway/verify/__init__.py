"""The history checker: reads the database alone and says which promise was broken."""
