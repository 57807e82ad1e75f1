"""Export checkpoints for other programs: Hugging Face and PyTorch DCP."""
