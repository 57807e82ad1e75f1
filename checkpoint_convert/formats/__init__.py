"""Formats of checkpoints on disk, read in part: Megatron zarr, PAXML, DCP, safetensors."""
