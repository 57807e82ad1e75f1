"""GPT-3 and Llama 3.1: one plain page each, and their passes with written-out derivatives, divided among devices."""
