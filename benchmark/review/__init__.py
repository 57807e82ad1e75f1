"""Whether a result log would be accepted."""
