"""Make outputs in parts, record them in a manifest, and publish them whole."""
