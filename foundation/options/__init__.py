"""The options of a command: their table, their help, their completions, and values read from a command line."""
