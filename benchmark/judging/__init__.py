"""Read, judge, show and hand in results; installable and usable without PyTorch."""
