"""The timed run: what happens between run_start and run_stop, and what is saved of it."""
