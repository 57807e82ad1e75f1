"""Text in C4's format: read it, choose the validation subset, generate some."""
