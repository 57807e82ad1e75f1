"""Describe this machine, the versions that run on it, and the way a process uses it."""
