"""What every stage shares: one-line errors, files published whole, the manifest beside them, progress."""
