"""What the published GPT-3 results of rounds 3.0 to 4.1 look like: facts that strangers' logs are compared with."""
