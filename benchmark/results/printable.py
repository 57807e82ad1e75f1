"""Make a stranger's text fit for one line of ours."""

PATIENCE = 100
"""Multiple of the shown length that is looked at; the rest of a longer text is ignored."""


def printable(text: str) -> str:
    """Return the text with a question mark for every control character, so that it cannot control the terminal or break
    the line."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, most: int) -> str:
    """Return the printable text without space around it, cut to at most ``most`` characters; a cut text ends in an
    ellipsis."""
    text = printable(text[: PATIENCE * most].strip()) if len(text) > PATIENCE * most else printable(text.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"
