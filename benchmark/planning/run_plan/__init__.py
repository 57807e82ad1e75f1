"""Compute step time, memory and run time of a planned run."""
