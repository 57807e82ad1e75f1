"""Check machines and inputs before a job."""
