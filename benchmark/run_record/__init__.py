"""Everything that a run leaves on disk: file names, forms, readers and writers."""
