"""From C4's json.gz shards to token windows: tokenizer, .bin/.idx files, and the order in which they are read."""
