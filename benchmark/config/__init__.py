"""The configuration of a run as data, and the options of the command line that override it."""
