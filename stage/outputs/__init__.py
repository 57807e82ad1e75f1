"""How outputs are made of pieces, recorded in a manifest, and published whole."""
