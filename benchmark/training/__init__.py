"""The timed run: everything between run_start and run_stop, and what the run saves."""
