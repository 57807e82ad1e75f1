"""The checks of our own, by concern; ``table.py`` lists them all."""
