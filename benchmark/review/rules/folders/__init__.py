"""Rules about the folder of a submission."""
