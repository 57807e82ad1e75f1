"""Events of a run and their sinks: MLPerf log, events.jsonl, console, TensorBoard and others."""
