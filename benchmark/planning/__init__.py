"""Plan a run without its devices: memory, messages, step time and run time."""
