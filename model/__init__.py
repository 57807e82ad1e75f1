"""GPT-3 as plain single-device code, and the same with its derivatives written out and dealt out over devices."""
