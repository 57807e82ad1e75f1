"""The linear layers of blocks: their matrix products in each number format."""
