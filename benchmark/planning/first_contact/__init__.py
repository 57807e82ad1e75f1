"""Try everything that needs a GPU, each part in a process of its own, and write one result file."""
