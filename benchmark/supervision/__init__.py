"""What keeps a run going without a person: attempts, incidents, heartbeats, the watchdog, the next attempt."""
