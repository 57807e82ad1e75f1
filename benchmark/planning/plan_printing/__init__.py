"""What plan prints."""
