"""What watches loss, gradient and speed: spikes, gradients that are not finite, the way back; ranks that are slow."""
