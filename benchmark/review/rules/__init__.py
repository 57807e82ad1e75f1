"""The checks of our own, by concern; ``rule_table.py`` lists them all."""
