"""Notice that a process of a run died or hangs: its heartbeat, and the watchdog that looks for it."""
