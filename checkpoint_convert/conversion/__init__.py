"""Convert PAXML to the Megatron zarr layout and back, in bounded memory."""
