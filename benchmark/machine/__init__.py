"""What this machine is made of, which versions run on it, and how a process uses it."""
