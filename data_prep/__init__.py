"""Prepare the training data from C4's json.gz shards: tokenizer, .bin/.idx files, and the order in which they are
read."""
