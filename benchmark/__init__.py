"""The timed run and its configuration; what judges, packages, reports, plans and rehearses it."""
