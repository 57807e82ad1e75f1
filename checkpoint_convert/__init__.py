"""Convert the PAXML checkpoint to the Megatron zarr layout, and load that into the model's parameters."""
