"""Watch whether a run keeps its speed: slow ranks, drops of throughput, the health of devices."""
