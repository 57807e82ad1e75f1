"""What reads results: logs, run folders, packages, and the figures that follow from them."""
