"""A few layers of a benchmark on the devices at hand: what they take, and from what rates."""
