"""Make outputs of pieces, record them in a manifest, and publish them whole."""
