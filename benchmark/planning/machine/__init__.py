"""Describe this machine: its hardware, its system description, its software."""
