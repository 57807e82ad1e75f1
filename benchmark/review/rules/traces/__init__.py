"""Rules about the traces that a run leaves: its curve, its steps, its clock, its tokens."""
