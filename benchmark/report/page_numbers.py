"""Numbers as a page shows them: never rounded into saying something else, never longer than a line."""

NOTHING = "\N{EN DASH}"
LARGEST_WRITTEN_OUT = 1e15
CLOSE = 5e-5
"""What a log perplexity of four or more decimals may be rounded by."""


def number(value: float | None, form: str) -> str:
    """A number, or a dash for one that is not known; one too large to be read in full, in powers of ten."""
    if value is None:
        return NOTHING
    return form.format(value) if abs(value) < LARGEST_WRITTEN_OUT else f"{value:.4g}"


def perplexity(value: float | None, target: float | None, form: str = "{:.5f}") -> str:
    """A log perplexity, with all its digits where fewer would put it on the other side of the target."""
    if value is None or target is None or abs(value - target) > CLOSE:
        return number(value, form)
    shown = form.format(value)
    return shown if (float(shown) <= target) == (value <= target) else repr(value)
