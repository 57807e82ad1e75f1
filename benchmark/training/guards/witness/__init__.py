"""What a run writes down as evidence of itself while it trains (--evidence); a replay does the same."""
