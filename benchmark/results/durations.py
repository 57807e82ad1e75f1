"""Lengths of time, for people."""


def duration(seconds: float) -> str:
    """Seconds with the unit that reads best."""
    if seconds >= 5400:
        return f"{seconds / 3600:.2f} h"
    if seconds >= 300:
        return f"{seconds / 60:.2f} min"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.1f} s"
