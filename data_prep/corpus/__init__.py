"""Text in C4's format: reading it, choosing the validation subset, making some up."""
