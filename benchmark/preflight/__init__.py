"""Whether machines and inputs will carry a run, before a job is spent on finding out."""
