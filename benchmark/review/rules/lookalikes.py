"""Letters that show as others or not at all, in names that people compare by eye and tools byte by byte.

Letters of any language are names like others; a mixture of two alphabets in one word, and what cannot be seen, are not.
Sources: docs/facts/mlperf_review.md 2.2, 4.1, 4.5.
"""

import unicodedata
from collections.abc import Iterator

from benchmark.results.subjects import SubmissionPackage
from benchmark.review.findings import Deviation, Run, at
from benchmark.review.rules.key_rules import ALTERNATIVES, AT_LEAST_ONE, EXACTLY_ONE
from benchmark.review.rules.system_rules import COUNTS, NAMES, REQUIRED, Described

KEYS = frozenset(
    (*EXACTLY_ONE, *AT_LEAST_ONE, *(key for pair in ALTERNATIVES for key in pair), "seed", "eval_start", "eval_stop")
)
ALPHABETS = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "FULLWIDTH", "MATHEMATICAL")
"""Whose letters look alike, as the names of Unicode's characters begin."""
UNSEEN = ("Cf", "Cc", "Co", "Cn", "Zl", "Zp")
"""Categories of characters that show nothing; Cf has those that turn the direction of writing."""
NAMED = ("submission_org", "submission_platform")
EXACT = ("submitter", "system_name", "division", "status")
MEND = "write it with plain letters, and the same everywhere"
MOST_NAMED = 4096


def odd_letters(text: str) -> str:
    """What is odd about a name, in words; empty: nothing."""
    text = text[:MOST_NAMED]
    for letter in text:
        if unicodedata.category(letter) in UNSEEN or (letter.isspace() and letter != " "):
            return f"a character that cannot be seen, U+{ord(letter):04X}"
        if letter.isdigit() and not letter.isascii():
            return f"a digit of another writing, U+{ord(letter):04X}"
    found = {_alphabet(letter): letter for letter in text if letter.isalpha()}
    mixed = [name for name in ALPHABETS if name in found]
    if len(mixed) > 1:
        letter = found[mixed[1]]
        return f"letters of two alphabets, {mixed[0].title()} and {mixed[1].title()}, as U+{ord(letter):04X}"
    return "a blank at its beginning or end" if text != text.strip() else ""


def _alphabet(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]


def in_log(run: Run) -> Iterator[Deviation]:
    for key in NAMED:
        for event in run.log.all(key):
            odd = odd_letters(event.value) if isinstance(event.value, str) else ""
            if odd:
                yield at(run, event, f"{key} with {odd}", "a name in plain letters", MEND)


def like_a_key(run: Run) -> Iterator[Deviation]:
    """Keys that a reader takes for those of the benchmark, and a tool does not."""
    for key in run.log.by_key:
        plain = unicodedata.normalize("NFKC", key).strip().casefold()
        if key in KEYS:
            continue
        odd = odd_letters(key)
        if plain in KEYS or odd:
            event = run.log.all(key)[0]
            found = f"key {key!r:.60}" + (f" with {odd}" if odd else f", beside {plain!r}")
            yield at(run, event, found, "keys in small letters, as the rules have them", "log it under another name")


def other_namespace(run: Run) -> Iterator[Deviation]:
    """Records that count, under a namespace: the official tools do not look at it, so whose values are they?"""
    for key in ("eval_accuracy", "run_start", "run_stop"):
        for event in run.log.all(key):
            if '"namespace": ""' not in event.text and '"namespace":""' not in event.text:
                found = f"{key} in a namespace: {event.text[:60]}"
                mend = "say whose value it is; records of the run have an empty namespace"
                yield at(run, event, found, 'namespace ""', mend)
                return


def in_description(subject: Described) -> Iterator[Deviation]:
    description = subject.description
    for name in (*NAMES, *COUNTS, "division", "status"):
        value = description.content.get(name)
        exact = name in EXACT  # in the others a blank at the end does no harm, and published ones have some
        odd = odd_letters(value if exact else value.strip()) if isinstance(value, str) else ""
        if odd:
            found = f"{name} with {odd}"
            yield Deviation(description.path, description.line(name), found, "plain letters", MEND)


def like_a_field(subject: Described) -> Iterator[Deviation]:
    """Fields that a reader takes for one of the mandatory ones."""
    description = subject.description
    for name in description.content:
        plain = unicodedata.normalize("NFKC", name).strip().casefold().replace(" ", "_")
        if name not in REQUIRED and (plain in REQUIRED or odd_letters(name)):
            found, due = f"field {name!r:.60}", f"{plain!r:.60} once" if plain in REQUIRED else "plain letters"
            mend = "remove it, or give it a name of its own"
            yield Deviation(description.path, description.line(name), found, due, mend)


def in_paths(package: SubmissionPackage) -> Iterator[Deviation]:
    """Names of folders and files, below results/ and systems/ and of the package itself."""
    paths = [
        package.path,
        *(one.path for one in package.entries if one.path.relative_to(package.path).parts[0] != "benchmarks"),
    ]
    for path in paths:
        odd = odd_letters(path.name) if path.name.isprintable() else ""
        if odd:
            yield Deviation(path, None, f"name {path.name!r:.80} with {odd}", "plain letters", MEND)


def same_but_case(package: SubmissionPackage) -> Iterator[Deviation]:
    """Two names that are one on a file system that does not tell capitals, or compositions of letters, apart."""
    seen: dict[tuple[str, str], str] = {}
    for entry in package.entries:
        plain = unicodedata.normalize("NFKC", entry.path.name).casefold()
        other = seen.setdefault((str(entry.path.parent), plain), entry.path.name)
        if other != entry.path.name:
            mend = "give them names that differ by more: on some machines one replaces the other"
            yield Deviation(entry.path, None, f"name {entry.path.name!r:.80} beside {other!r:.80}", "one of them", mend)
