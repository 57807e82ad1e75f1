"""Checks of our own, by topic; ``rule_table.py`` lists them all."""
