"""What a person switches on to see inside a run: traces, ranges for nsys, memory snapshots, logs of NCCL."""
