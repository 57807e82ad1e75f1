"""Several systems on one page: what each comes to, where their curves differ, what changed since another round."""
