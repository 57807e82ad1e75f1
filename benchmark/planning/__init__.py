"""Plan what a machine can do and what a run would take, from a check of one node to the score of a system."""
