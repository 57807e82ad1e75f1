"""Checkpoints that PyTorch wrote: distributed ones (DCP), Megatron-Core's among them, read without running them."""
