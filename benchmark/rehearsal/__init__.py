"""The whole benchmark at a small size on this machine, and reference points made by it."""
