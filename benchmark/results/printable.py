"""Texts for people: a stranger's, made fit for one line of ours, and lengths of time."""

PATIENCE = 100
"""Of a text so many times longer than what is shown, only the beginning is looked at."""


def printable(text: str) -> str:
    """The text with a question mark for every control character: no terminal obeys it, no line breaks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, most: int) -> str:
    """The printable text without space around it, cut to at most ``most`` characters, the last then an ellipsis."""
    text = printable(text[: PATIENCE * most].strip()) if len(text) > PATIENCE * most else printable(text.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"
