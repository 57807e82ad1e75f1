"""What a dataset holds, and where two differ."""
