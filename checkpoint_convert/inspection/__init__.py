"""Inspect a checkpoint, and compare two."""
