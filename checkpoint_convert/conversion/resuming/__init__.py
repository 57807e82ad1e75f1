"""What a conversion has read and written, so that it can be gone on with, shared between machines, and trusted."""
