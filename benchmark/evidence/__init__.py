"""What a run leaves as evidence: a chain of links, one for each step, that can be checked and replayed."""
