"""The evidence that a run leaves of itself: a chain of records that can be checked, and replayed."""
