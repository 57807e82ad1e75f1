"""The official checkers of ``mlperf-logging``: what they read, where they run, and what their output proves."""
