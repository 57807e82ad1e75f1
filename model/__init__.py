"""GPT-3 as plain single-device code, and the ways to spread it over devices, applied from outside."""
