"""Who does a piece of work: processes told apart across machines, and claims that need no locks of the file system."""
