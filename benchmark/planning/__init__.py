"""What a run would need and take, without its devices."""
