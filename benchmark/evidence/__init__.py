"""What a run leaves as evidence of itself: a chain of records that can be checked, and replayed."""
