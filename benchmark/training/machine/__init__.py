"""The machine as a rank sees it: its GPUs, its process, the versions that run."""
