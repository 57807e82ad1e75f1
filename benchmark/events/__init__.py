"""What happens in a run, as events, and where they go: MLPerf log, events.jsonl, console, TensorBoard and others."""
