"""How checkpoints lie on disk, read in part: Megatron zarr, PAXML, DCP, safetensors."""
