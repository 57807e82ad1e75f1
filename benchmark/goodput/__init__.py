"""Where the wall time of a run went, over all its attempts, and what to expect at a rate of failures."""
