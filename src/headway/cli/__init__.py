"""The command line: reads settings and options, prints tables and JSON."""
