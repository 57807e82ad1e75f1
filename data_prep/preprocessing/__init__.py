"""From files of text to a dataset: many files, many workers, many machines, the same bytes."""
