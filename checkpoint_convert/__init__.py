"""From the PAXML checkpoint to the Megatron zarr layout, and from there into the model's parameters."""
