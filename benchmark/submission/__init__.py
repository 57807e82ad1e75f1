"""From three logs to a submission: the description of the system, and the package."""
