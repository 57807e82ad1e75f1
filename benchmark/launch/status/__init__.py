"""The status of a run: its state, speed and attempts, and where its time went."""
