"""What drills there are: data."""
