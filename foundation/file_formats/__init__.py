"""Read files that strangers may have written: JSON, pickles, and the archives of PyTorch."""
