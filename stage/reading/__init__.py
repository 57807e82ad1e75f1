"""Reading what comes from anybody: bounded, and never waiting."""
