"""Faults injected into short runs of the rehearsal, and what came of each."""
