"""How a run is doing: its state, speed and attempts, and where its time went."""
