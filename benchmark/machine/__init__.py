"""What this machine is made of, and which versions run on it."""
