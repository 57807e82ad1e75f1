"""What the benchmark needs, where it comes from, and how long its preparation takes."""
