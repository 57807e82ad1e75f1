"""Make a submission from three logs: the description of the system, and the package."""
