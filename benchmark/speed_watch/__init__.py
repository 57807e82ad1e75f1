"""Whether a run is as fast as it was: slow ranks, drops of throughput, the health of devices."""
