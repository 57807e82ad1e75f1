"""What is wrong with how a case ended."""

import gzip
import json
import shutil
import signal
import subprocess
from pathlib import Path

import sentencepiece
import zstandard

from data_prep.token_files.indexed_dataset import IndexedDataset
from tests.fuzz.failing_calls import CHANGES, FailingCall, failing_call_at_random
from tests.fuzz.fuzz_case import Case
from tests.fuzz.user_files import KEEPS_SIZE, REPLACED

LONGEST_ERROR = 1500


def verdict(case: Case) -> "tuple[int | None, str | None]":
    """Status of a case, and what is wrong with it."""
    try:
        return _try_files(case) if case.hostile else _try_fault(case)
    except subprocess.TimeoutExpired as error:
        return None, f"{error}\n  {case.words}\n  {case.fault}\n  damaged {case.user.damaged}"


def _try_files(case: Case) -> "tuple[int | None, str | None]":
    """Of odd options and damaged files."""
    before = case.state()
    done = case.run()
    problem = problem_with(case, done, before)
    if problem is None and (done.returncode == 0 or case.output is not None):
        problem = wrongly_published(case, done)
    told = f"\n  {case.words}\n  closed {case.closed}\n  damaged {case.user.damaged}\n  {done.stderr[-900:]}"
    return done.returncode, problem and problem + told


def problem_with(case: Case, done: "subprocess.CompletedProcess[str]", before: dict[str, str]) -> str | None:
    after = case.state()
    lost = [path for path, state in before.items() if after.get(path) != state]
    if lost:
        return f"the user's {lost[0]} is not what it was"
    if done.returncode not in (0, 1, 2):
        return f"exit status {done.returncode}"
    if "Traceback" in done.stderr + done.stdout:
        return "a traceback"
    if "not enough memory" in done.stderr:
        return "a size that nobody has looked at before memory was taken"
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    if done.returncode == 2 and (len(errors) != 1 or not done.stderr.splitlines()[-1].startswith("error: ")):
        return "an error that is not one line"
    if errors and len(errors[0]) > LONGEST_ERROR:
        return f"an error of {len(errors[0])} characters"
    shown = (word.encode(errors="surrogateescape").decode(errors="backslashreplace") for word in case.words)
    named = [*"/='", "--", "worker", ".: ", *(" ".join(word.split()) for word in shown if word.strip())]
    if errors and not any(word in errors[0] for word in named):
        return "an error that names no option and no file"
    return None


def wrongly_published(case: Case, done: "subprocess.CompletedProcess[str]") -> str | None:
    """Compare with what the command makes of good files, where damage could have been seen."""
    try:
        found = case.published()
    except AssertionError as error:
        return str(error)
    if done.returncode or not found:
        return None
    if case.command.name == "preprocess":
        return preprocess_differs(case)
    values_only = any(kind in KEEPS_SIZE or _is_text(path) for path, kind in case.user.damaged)
    gone = any(kind in REPLACED for _, kind in case.user.damaged)
    asked_for = gone and "--missing-chunks-are-zeros" in case.words
    if not case.user.damaged or values_only or asked_for or case.command.tool == "checksums":
        return None
    case.begin_anew()
    good = case.run()
    if good.returncode == 0 and case.published() != found:
        return "published something else than of undamaged files"
    return None


def _is_text(path: Path) -> bool:
    """Whether less or more of it is as good as before."""
    return path.name.endswith((".json", ".gz", ".zst", ".hashes"))


def preprocess_differs(case: Case) -> str | None:
    """How a dataset differs from what a plain pipeline makes of the same files."""
    output = case.output
    if output is None or not output.with_name(output.name + ".manifest.json").exists():
        return None
    options = case.words
    not_plain = ("--shard", "--text-key")
    if any(option in options for option in not_plain) or len(options) != len(set(options)):
        return None
    served = case.served_paths
    inputs = [
        served.get(word, Path(word)) for word in options[options.index("--input") + 1 : options.index("--tokenizer")]
    ]
    model = Path(options[options.index("--tokenizer") + 1])
    try:
        return wrong_dataset(
            output,
            inputs,
            model,
            skip="skip" in options,
            append_eod="--append-eod" in options,
        )
    except Exception as error:  # the plain pipeline, too, found a file damaged
        return f"published, though a plain pipeline fails: {type(error).__name__}: {error}"


def _try_fault(case: Case) -> "tuple[int | None, str | None]":
    """Of a fault."""
    counts = _counts(case)
    if isinstance(counts, str):
        return None, counts
    expected, seen, usual = counts
    victims = sorted(path for path in case.user.path.rglob("*") if path.is_file()) or [case.there / "mine"]
    fault = case.fault = failing_call_at_random(case.draw, seen, victims)
    if fault.what in CHANGES:
        shutil.copytree(case.user.path, case.folder / "kept")
    before = case.state()
    if fault.what in CHANGES:
        before.pop(str(fault.victim))
    done = case.run(fault)
    told = f"\n  {fault}\n  {case.words}\n  {done.stderr[-900:]}"
    killed = fault.what == "kill" and done.returncode == -signal.SIGKILL
    problem = None if killed else problem_with(case, done, before)
    if problem is None and done.returncode == 1 and usual != 1 and fault.what not in CHANGES:
        problem = "a check failed, where a system call did"
    problem = problem or _after_fault(case, fault, done.returncode, expected)
    return done.returncode, problem and problem + told


Faultless = tuple[dict[str, str], dict[str, int], int]
"""What a command publishes without a fault, its calls of each kind, and its status."""
FAULTLESS: dict[str, Faultless] = {}
"""By the command's words."""


def _counts(case: Case) -> Faultless | str:
    """See FAULTLESS; a text where the command fails, with no fault at all."""
    key = json.dumps(case.words)
    if key not in FAULTLESS:
        counts = case.folder / "counts"
        good = case.run(counts=str(counts))
        if good.returncode not in (0, 1) or not counts.exists():
            return f"status {good.returncode} without a fault\n  {case.words}\n  {good.stderr[-900:]}"
        FAULTLESS[key] = case.published(), json.loads(counts.read_text()), good.returncode
        case.begin_anew()
    return FAULTLESS[key]


def _after_fault(case: Case, fault: FailingCall, status: int, expected: dict[str, str]) -> str | None:
    """What is there is right, and the same command, without a fault, ends well."""
    changes_input = fault.what in CHANGES
    try:
        found = case.published()
        partly = {name: md5 for name, md5 in found.items() if expected.get(name) != md5}
        if partly and not (changes_input and status == 0):
            return f"published {sorted(partly)[:3]}, which is not what it should be"
        if status == 0 and not changes_input and found.keys() != expected.keys():
            return f"status 0, and {sorted(expected.keys() ^ found.keys())[:3]} are not both here and there"
        if changes_input:
            shutil.rmtree(case.user.path)
            shutil.copytree(case.folder / "kept", case.user.path)
        again = case.run()
        if again.returncode not in (0, 1) and not (changes_input and status == 0):
            return f"run again, it ends with {again.returncode}: {again.stderr[-600:]}"
        found = case.published()
        if found != expected and not (changes_input and status == 0):
            differ = sorted(name for name in found.keys() | expected if found.get(name) != expected.get(name))
            return f"run again, {differ[:3]} differ"
        left = [path.name for path in case.there.iterdir() if path.name.endswith((".partial", "lock"))]
        if fault.kind == "remove":  # what could not be removed when all was made
            left = [name for name in left if not name.endswith(".lock")]
        if left and "--shard" not in case.words:
            return f"run again, {left} is left"
    except AssertionError as error:
        return str(error)
    return None


def documents_of_file(path: Path, *, skip: bool) -> list[str | None]:
    """Read a file with Python's own gzip and json: the text of each document; None for a bad line, if ``skip``.

    Raises ValueError for a bad line otherwise.
    """
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".zst":
        content = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True).readall()
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    texts: list[str | None] = []
    for number, line in enumerate(lines, 1):
        try:
            text = json.loads(line)["text"]
            texts.append(text.encode().decode() if isinstance(text, str) else None)
        except (ValueError, TypeError, KeyError, RecursionError):
            texts.append(None)
        if texts[-1] is None and not skip:
            raise ValueError(f"{path}:{number}: a bad line")
    return texts


def wrong_dataset(prefix: Path, inputs: list[Path], model: Path, *, skip: bool, append_eod: bool) -> str | None:
    """How a dataset differs from what this makes of the same files."""
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())
    texts = [text for path in inputs for text in documents_of_file(path, skip=skip) if text is not None]
    end = [tokenizer.eos_id()] if append_eod else []
    expected = [[*ids, *end] for text in texts if (ids := tokenizer.encode(text))]
    dataset = IndexedDataset(prefix)
    found = [dataset.tokens(number, 0, int(size)).tolist() for number, size in enumerate(dataset.sizes[:])]
    return None if found == expected else f"{len(found)} documents, expected {len(expected)}, or other tokens"
