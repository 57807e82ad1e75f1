"""The state of a run, read from its record, and the use of its wall time."""
