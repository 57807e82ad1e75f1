"""A few layers at the true width on the devices at hand: how fast they are, where the time goes, what a plan needs."""
