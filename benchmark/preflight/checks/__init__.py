"""The checks of machines and inputs before a job."""
