"""The commands of ``python -m data_prep``: a frozen dataclass each, whose fields are its options."""
