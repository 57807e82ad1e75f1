"""Judge whether a result log would be accepted."""
