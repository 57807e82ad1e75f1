"""The files that the benchmark needs, their origins, and the time that their preparation takes."""
