"""What watches loss and gradient: spikes, gradients that are not finite, walls of them, and the way back."""
