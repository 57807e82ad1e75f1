"""What a run is: its configuration, as data, and how the command line overrides it."""
