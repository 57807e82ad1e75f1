"""What a checkpoint holds, and where two differ."""
