"""The .bin and .idx files: layout, reading, writing."""
