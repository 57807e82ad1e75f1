"""Proofs of a rank's kernels before a run: their numbers against those of other kernels or of operators."""
