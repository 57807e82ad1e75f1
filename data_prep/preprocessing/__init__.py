"""Make a dataset from files of text: many files, many workers, many machines, the same bytes."""
