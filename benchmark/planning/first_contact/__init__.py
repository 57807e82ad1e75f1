"""Run everything that only a GPU can tell, each part in a process of its own, and write one result file."""
