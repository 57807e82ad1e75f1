"""A stranger's text, made fit for one line of ours."""


def printable(text: str) -> str:
    """The text with a question mark for every control character: no terminal obeys it, no line breaks."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def shortened(text: str, most: int) -> str:
    """The same without space around it, and at most so many characters long."""
    text = printable(text.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"
