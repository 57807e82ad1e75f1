"""Make a submission from the logs of a benchmark: the description of the system, and the package."""
