"""The command line: settings in, tables and JSON out."""
