"""Predict and measure the speed of machines and the length of runs, from a check of one node to a system's score."""
