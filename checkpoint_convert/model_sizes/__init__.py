"""What a checkpoint tells of its model: sizes of the axes, names and shapes of the parameters, attention heads."""
