"""Run a few layers of a benchmark on the devices at hand, and measure their time and the devices' rates."""
