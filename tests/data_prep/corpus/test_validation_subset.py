"""Choosing validation documents: the reference's rule, and lists of hashes."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from data_prep.corpus.validation_subset import chosen_indices
from foundation.outputs.manifest import read_manifest
from tests.support import assert_refused, command

LINES = [json.dumps({"url": f"u{n}", "text": f"Tréé {n}\nand more"}, ensure_ascii=n % 2 == 0) for n in range(30)]


def md5(number: int) -> str:
    return hashlib.md5(f"Tréé {number}\nand more".encode()).hexdigest()


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """30 documents in two files, one of them gzipped and without a newline at its end."""
    first, second = tmp_path / "a.json", tmp_path / "b.json.gz"
    first.write_text("".join(f"{line}\n" for line in LINES[:20]), encoding="utf-8")
    second.write_bytes(gzip.compress("\n".join(LINES[20:]).encode()))
    return [first, second]


def test_the_rule_is_the_references() -> None:
    assert chosen_indices(10, 4) == [0, 2, 5, 7]
    assert chosen_indices(5, 5) == [0, 1, 2, 3, 4]
    assert chosen_indices(30, 22)[11] == 14  # 11 * (30 / 22) in floating point; exactly it would be 15
    places = chosen_indices(364_608, 24_567)
    assert (len(set(places)), places[:3], places[-1]) == (24_567, [0, 14, 29], 364_593)


def test_evenly_spread_lines_are_kept_as_they_are(inputs: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out" / "subset.json"
    arguments = ["validation-subset", "--input", *inputs, "--output", output]
    done = command("data_prep", *arguments, "--count", 4)
    assert done.returncode == 0, done.stderr
    chosen = [0, 7, 15, 22]
    assert output.read_text(encoding="utf-8").split("\n") == [*(LINES[number] for number in chosen), ""]
    hashes = output.with_name("subset.json.hashes")
    assert hashes.read_text() == "".join(f"{md5(number)}\n" for number in chosen)
    size = sum(len(f"Tréé {number}\nand more".encode()) for number in chosen)
    assert f"4 of 30 documents, {size} bytes of text in 8 lines, 17 to 18 bytes per document" in done.stdout
    manifest = read_manifest(output)
    assert manifest is not None
    assert [record.name for record in manifest.outputs] == ["subset.json", "subset.json.hashes"]
    assert "already made" in command("data_prep", *arguments, "--count", 4).stdout
    assert_refused(command("data_prep", *arguments, "--count", 5), "was made otherwise", "--force")
    assert command("data_prep", *arguments, "--count", 5, "--force").returncode == 0
    assert len(hashes.read_text().splitlines()) == 5


def test_a_list_gives_its_documents_in_its_order(inputs: list[Path], tmp_path: Path) -> None:
    chosen = [25, 3, 29, 0]
    (tmp_path / "list.txt").write_text("\n".join(md5(number) for number in chosen))
    arguments = ["--output", tmp_path / "subset.json", "--hash-list", tmp_path / "list.txt"]
    done = command("data_prep", "validation-subset", "--input", *inputs[::-1], *arguments)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "subset.json").read_text(encoding="utf-8")
    assert text.splitlines() == [LINES[number] for number in chosen]
    assert (tmp_path / "subset.json.hashes").read_text().split() == (tmp_path / "list.txt").read_text().split()


def test_listed_documents_that_are_missing_are_counted(inputs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("\n".join([md5(1), md5(40), md5(2), md5(41)]))
    arguments = ["--output", tmp_path / "subset.json", "--hash-list", tmp_path / "list.txt"]
    done = command("data_prep", "validation-subset", "--input", *inputs, *arguments)
    assert_refused(done, "2 of 4 documents are not among the 30 of the inputs, the first of them " + md5(40), status=1)
    assert not (tmp_path / "subset.json").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--count", "31"], "--count 31: expected 1 to 30, the number of the inputs' documents"),
        (["--count", "0"], "--count 0: expected 1 to 30, the number of the inputs' documents"),
        (["--hash-list", "none.txt"], "none.txt: no such file"),
        (["--hash-list", "README.md"], "README.md:1: expected the MD5 of a document's text, got '#'"),
        (["--hash-list", "/dev/null"], "not a regular file"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], complaint: str, inputs: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "subset.json"
    done = command("data_prep", "validation-subset", "--input", *inputs, "--output", output, *arguments)
    assert_refused(done, complaint)
    assert not output.exists()
