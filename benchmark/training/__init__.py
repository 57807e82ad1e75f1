"""The timed run: everything between run_start and run_stop, and the run's files."""
