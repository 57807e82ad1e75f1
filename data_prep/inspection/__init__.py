"""The content of datasets, and the first place where two differ."""
