"""Look inside a run on request: traces, ranges for nsys, memory snapshots, logs of NCCL."""
