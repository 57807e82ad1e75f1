"""Generate a small corpus in C4's own format, word by word, for the rehearsal.

Its bytes depend on the seed alone: the only source of randomness is ``random.Random(seed).random()``, which Python
guarantees to repeat, and the gzip members hold stored blocks, which no zlib version compresses differently.

The text has structure to learn at several distances. Letters make syllables, words follow Zipf's law, nouns choose
their adjectives and verbs, and sentences follow grammar. A document keeps to its topic, its town and its two people.
"""

import json
import random
import struct
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from foundation.cli import OutputOptions
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import Recipe
from foundation.outputs.resumable_output import resumable_output
from foundation.sizes import require_between

ONSETS = "b c d f g h l m n p r s t v w br cr dr fl gr pl sh st th tr".split()
VOWELS = "a a e e i i o o u ai ea oo".split()
CODAS = ["", "", "", "", "l", "m", "n", "r", "s", "t", "nd", "st"]

TEMPLATES = [
    "In {year}, {person} {verb} the {adjective} {noun} of {place}.",
    "The {noun} was {adjective}, and {person} {verb} it near the {noun2}.",
    "{person} and {person2} {verb} a {adjective} {noun} in {place}.",
    "Nobody in {place} had ever {verb} such a {adjective} {noun} before.",
    "After {number} days the {noun} was {verb} by {person2}.",
    "It is said that every {noun} in {place} is as {adjective} as the {noun2}.",
    "{person2} did not want the {noun}, because the {adjective2} {noun2} was there.",
    "They {verb} {number} {noun}s and one {adjective2} {noun2}.",
    "Why would {person} have {verb} the {noun}?",
    "The {adjective} {noun} of {person} is still in {place} today.",
]


BYTES_VERSION = 1
"""Version of the bytes that the command makes of the same inputs and options (``Recipe.bytes_version``)."""
LARGEST_COUNT = 1_000_000
LARGEST_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class CorpusSize:
    """The amount of text to generate."""

    shards: int = 8
    documents_per_shard: int = 400
    validation_documents: int = 80
    sentences_per_document: int = 16
    """Average number; documents have half to one and a half times as many sentences."""


class _Draw:
    """Reproducible random choices."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def zipf(self, items: list[str]) -> str:
        """Choose an item; the square of a uniform number favours the first items much as Zipf's law does."""
        return items[int(self._random() ** 2 * len(items))]

    def chance(self, share: float) -> bool:
        return self._random() < share


@dataclass(frozen=True)
class _Language:
    nouns: list[str]
    adjectives: list[str]
    verbs: list[str]
    people: list[str]
    towns: list[str]


def write_synthetic_corpus(output: Path, *, seed: int, size: CorpusSize, force: bool = False) -> bool:
    """Write ``output/en/c4-train.*.json.gz`` and ``output/c4-validation.json``; return False if they are already there.

    Raises InputError if the folder holds something else.
    """
    _require_possible(size)
    require_between(seed, 0, LARGEST_SEED, "--seed")
    recipe = Recipe("synthetic-corpus", {"seed": seed, **asdict(size)}, [], bytes_version=BYTES_VERSION)
    with resumable_output(output, recipe, force=force) as job:
        if job is None:
            return False
        folder = job.new_path()
        _write_files(folder, seed, size)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = "".join(f"{md5_file(path)}  {path.relative_to(folder)}\n" for path in paths)
        job.publish({output: (folder, md5_text(sums))}, [], {})
    return True


def _write_files(folder: Path, seed: int, size: CorpusSize) -> None:
    draw = _Draw(seed)
    language = _invent(draw)
    (folder / "en").mkdir(parents=True)
    for shard in range(size.shards):
        name = f"c4-train.{shard:05d}-of-{size.shards:05d}.json.gz"
        text = _json_lines(_make_documents(draw, language, size, size.documents_per_shard), shard)
        (folder / "en" / name).write_bytes(stored_gzip(text))
    text = _json_lines(_make_documents(draw, language, size, size.validation_documents), size.shards)
    (folder / "c4-validation.json").write_bytes(text)


def _require_possible(size: CorpusSize) -> None:
    for name, number in asdict(size).items():
        low = 0 if name in ("validation_documents", "sentences_per_document") else 1
        require_between(number, low, LARGEST_COUNT, f"--size.{name.replace('_', '-')}")


def stored_gzip(data: bytes) -> bytes:
    """Return one gzip member that holds ``data`` uncompressed (RFC 1952, RFC 1951 section 3.2.4)."""
    blocks = [data[start : start + 65535] for start in range(0, len(data), 65535)] or [b""]
    body = b"".join(
        struct.pack("<BHH", number == len(blocks) - 1, len(block), 0xFFFF - len(block)) + block
        for number, block in enumerate(blocks)
    )
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _invent(draw: _Draw) -> _Language:
    known_words: set[str] = set()

    def words(count: int, suffix: str = "", capital: bool = False) -> list[str]:
        words_of_kind: list[str] = []
        while len(words_of_kind) < count:
            syllables = 2 if capital else 1 + draw.below(2)
            word = "".join(
                ONSETS[draw.below(len(ONSETS))] + VOWELS[draw.below(len(VOWELS))] + CODAS[draw.below(len(CODAS))]
                for _ in range(syllables)
            )
            if word not in known_words:
                known_words.add(word)
                words_of_kind.append((word.capitalize() if capital else word) + suffix)
        return words_of_kind

    return _Language(words(480), words(160), words(160, "ed"), words(120, capital=True), words(60, capital=True))


def _make_documents(draw: _Draw, language: _Language, size: CorpusSize, count: int) -> Iterable[str]:
    for _ in range(count):
        topic = draw.below(16)
        nouns = language.nouns[topic::16]
        people = [language.people[draw.below(len(language.people))] for _ in range(2)]
        town = draw.zipf(language.towns)
        half = size.sentences_per_document // 2
        sentences = half + draw.below(2 * half + 1)
        text = []
        for _ in range(sentences):
            text.append(_sentence(draw, language, nouns, people, town))
            text.append("\n" if draw.chance(0.2) else " ")
        yield "".join(text).strip()


def _sentence(draw: _Draw, language: _Language, nouns: list[str], people: list[str], town: str) -> str:
    noun, noun2 = draw.zipf(nouns), draw.zipf(nouns)
    return TEMPLATES[draw.below(len(TEMPLATES))].format(
        noun=noun,
        noun2=noun2,
        adjective=_fitting(draw, noun, language.adjectives),
        adjective2=_fitting(draw, noun2, language.adjectives),
        verb=_fitting(draw, noun, language.verbs),
        person=people[0],
        person2=people[1],
        place=town,
        year=1800 + draw.below(20) * 10,
        number=2 + draw.below(98),
    )


def _fitting(draw: _Draw, noun: str, words: list[str]) -> str:
    """Choose a word that goes with the noun: mostly one of two that are its own."""
    affinity = sum(noun.encode()) * 7
    return words[(affinity + draw.below(2)) % len(words)] if draw.chance(0.8) else draw.zipf(words)


def _json_lines(documents: Iterable[str], shard: int) -> bytes:
    lines = []
    for number, text in enumerate(documents):
        fields = {
            "text": text,
            "timestamp": "2019-04-25T12:57:54Z",
            "url": f"https://example.org/{shard}/{number}",
        }
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    return "".join(lines).encode("utf-8")


@dataclass(frozen=True, kw_only=True)
class SyntheticCorpusCommand(OutputOptions):
    """Write a small generated corpus in C4's format: OUTPUT/en/c4-train.*.json.gz and OUTPUT/c4-validation.json.

    Example: python -m data_prep synthetic-corpus --output corpus --seed 1
    """

    output: Path
    """Folder to write."""
    seed: int
    """Seed of the text; the same seed gives the same bytes."""
    size: CorpusSize = field(default_factory=CorpusSize)
    """Amount of text."""

    def run(self) -> None:
        is_new = write_synthetic_corpus(self.output, seed=self.seed, size=self.size, force=self.force)
        self.tell(
            {"output": str(self.output), "made": is_new, "shards": self.size.shards},
            f"{self.output}: {self.size.shards} shards" if is_new else f"{self.output}: already made",
        )
