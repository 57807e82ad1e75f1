"""A job under a stand-in for Slurm, disturbed by faults of its disk, its processes and Slurm at random."""
