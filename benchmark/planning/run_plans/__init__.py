"""Step time, memory, run time and cost of a run, and how they compare with what was measured."""
