"""The first run on a GPU: everything that only a GPU can tell, each part for itself, in one result file."""
