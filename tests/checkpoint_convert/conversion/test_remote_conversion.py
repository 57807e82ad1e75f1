"""A checkpoint from a bucket or a web server gives the bytes that a copy of it gives, or nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint_convert.conversion.paxml_to_megatron import paxml_to_megatron
from checkpoint_convert.conversion.remote_conversion import RemoteInput, remote_paxml_to_megatron
from checkpoint_convert.conversion.run_conversion import Converted
from checksums.md5_list import digest_folder, format_list
from stage.errors import InputError
from stage.remote import object_folder, patience
from stage.remote.object_address import parse_address
from stage.task_shard import TaskShard
from tests.checkpoint_convert.tiny import GIB, MakePaxml
from tests.stage.remote.faulty_server import Fault, FaultyServer
from tests.support import assert_refused, command

SIZES = "--seed 3 --layers 2 --hidden 36 --heads 4 --vocab 208 --values sane --pos 208"
SCALE = "mdl_vars.params.lm.final_ln.scale/0"


@pytest.fixture(scope="module")
def expected(make_once: MakePaxml, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint, and what a conversion of it where it lies gives."""
    source = make_once(f"{SIZES} --compressor gzip --chunks whole")
    output = tmp_path_factory.mktemp("expected") / "out"
    paxml_to_megatron(source, output, dtype="bf16", workers=1, memory_limit=GIB)
    return {"source": source, "output": output}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(object_folder, "RETRIES_WITHIN", {"max_retries": 0, "initial_delay": "1ms", "max_delay": "1ms"})
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    yield


def convert(
    server: FaultyServer,
    output: Path,
    kind: str = "http",
    *,
    shard: TaskShard | None = None,
    md5_list: Path | None = None,
) -> Converted | None:
    s3, web = ("s3://ckpt/run", server.url), (f"{server.url}/ckpt/run?token=SECRET", None)
    source = RemoteInput(parse_address(*(s3 if kind == "s3" else web)), md5_list=md5_list)
    return remote_paxml_to_megatron(source, output, dtype="bf16", workers=2, memory_limit=GIB, shard=shard)[0]


def served(source: Path, place: Path, fault: Fault = lambda key, number: None) -> FaultyServer:
    shutil.copytree(source, place / "served" / "run")
    return FaultyServer(place / "served", fault=fault)


def same(one: Path, other: Path) -> bool:
    names = [
        sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) for folder in (one, other)
    ]
    return names[0] == names[1] and all((one / name).read_bytes() == (other / name).read_bytes() for name in names[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["http", "s3"])
def test_the_same_bytes_over_a_bad_connection(kind: str, expected: dict[str, Path], tmp_path: Path) -> None:
    faults = ("unavailable", "dropped", "truncated", "cut")

    def fault(key: str, number: int) -> str | None:
        """The first request for each object fails, in this way or that; what is cut shows only in a chunk."""
        kinds = faults if key.endswith("0") and ".count" not in key and "/step/" not in key else faults[:3]
        return kinds[len(key) % len(kinds)] if number == 1 else None

    with served(expected["source"], tmp_path, fault) as server:
        assert convert(server, tmp_path / "out", kind) is not None
        assert same(tmp_path / "out", expected["output"])
        assert convert(server, tmp_path / "out", kind) is None  # it is there already
    texts = [path.read_text() for path in tmp_path.glob("out.*") if path.is_file()]
    assert not any("SECRET" in text for text in texts)


@pytest.mark.slow
def test_after_an_end_it_goes_on_and_notices_what_changed(expected: dict[str, Path], tmp_path: Path) -> None:
    last = "opt_states_0.no_prefix_2.v.params.lm.final_ln.bias/0"
    broken = ["unavailable"]
    with served(expected["source"], tmp_path, lambda key, _: broken[0] if key.endswith(last) else None) as server:
        with pytest.raises(InputError, match="cannot be read in 6 tries"):
            convert(server, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        broken[0] = ""
        server.requests.clear()
        scale = tmp_path / "served" / "run" / SCALE
        was = scale.read_bytes()
        scale.write_bytes(was[:-1] + bytes([was[-1] ^ 1]))
        with pytest.raises(InputError, match=r"changed (while|since)"):
            convert(server, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        scale.write_bytes(was)
        converted = convert(server, tmp_path / "out")
        assert converted is not None
        assert converted.resumed_files > 0
        assert same(tmp_path / "out", expected["output"])


@pytest.mark.slow
def test_tasks_share_the_reading_and_the_join_publishes(expected: dict[str, Path], tmp_path: Path) -> None:
    with served(expected["source"], tmp_path) as server:
        skeleton = tmp_path / "out.source"
        for index in range(3):
            assert convert(server, tmp_path / "out", shard=TaskShard(index, 3)) is not None
            assert not (tmp_path / "out").exists()
            made = skeleton.stat().st_ino
        assert skeleton.stat().st_ino == made  # written once
        chunks = {key: count for key, count in server.requests.items() if key.endswith("/0.0")}
        joined = convert(server, tmp_path / "out")
        assert joined is not None
        assert joined.resumed_files > 0
        assert same(tmp_path / "out", expected["output"])
        assert {key: server.requests[key] - count for key, count in chunks.items()} == dict.fromkeys(chunks, 1)  # asked


@pytest.mark.slow
@pytest.mark.parametrize("before_the_join", [True, False])
def test_what_changes_between_tasks_is_noticed(
    before_the_join: bool, expected: dict[str, Path], tmp_path: Path
) -> None:
    with served(expected["source"], tmp_path) as server:
        convert(server, tmp_path / "out", shard=TaskShard(0, 2))
        if before_the_join:
            convert(server, tmp_path / "out", shard=TaskShard(1, 2))
        scale = tmp_path / "served" / "run" / SCALE
        scale.write_bytes(scale.read_bytes() + b" ")
        with pytest.raises(
            InputError,
            match=r"changed (while|since).* remove .*out\.objects.* and those of the other tasks|damaged there",
        ):
            convert(server, tmp_path / "out", shard=None if before_the_join else TaskShard(1, 2))
            convert(server, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_published_sums_are_compared_as_it_is_read(expected: dict[str, Path], tmp_path: Path) -> None:
    sums = {f"run/{name}": digest for name, digest in digest_folder(expected["source"]).items()}
    good, bad, other = (tmp_path / name for name in ("good", "bad", "other"))
    good.write_text(format_list(sums))
    bad.write_text(format_list({**sums, f"run/{SCALE}": "0" * 32}))
    other.write_text(format_list({"a.json.gz": "0" * 32}))
    with served(expected["source"], tmp_path) as server:
        with pytest.raises(InputError, match=rf"{SCALE}: .*\(MD5 .*, the list has 0{{32}}\); it is damaged there"):
            convert(server, tmp_path / "out", md5_list=bad)
        with pytest.raises(InputError, match="expected the sums of a checkpoint's files"):
            convert(server, tmp_path / "out", md5_list=other)
        assert not (tmp_path / "out").exists()
        assert convert(server, tmp_path / "out", md5_list=good) is not None
    assert same(tmp_path / "out", expected["output"])


@pytest.mark.slow
def test_what_is_missing_or_damaged_there_is_named(expected: dict[str, Path], tmp_path: Path) -> None:
    with served(expected["source"], tmp_path) as server:
        run = tmp_path / "served" / "run"
        (run / SCALE).write_bytes(b"damaged")
        with pytest.raises(InputError, match=r"run/mdl_vars.*/0: a chunk cannot be read .*it is damaged there"):
            convert(server, tmp_path / "a")
        (run / SCALE).unlink()
        with pytest.raises(InputError, match=r"run/mdl_vars.*/0: chunk is missing"):
            convert(server, tmp_path / "b")
        (run / SCALE).with_name(".zarray").unlink()
        with pytest.raises(InputError, match="array is missing"):
            convert(server, tmp_path / "c")
        shutil.rmtree(run)
        with pytest.raises(InputError, match="no PAXML checkpoint"):
            convert(server, tmp_path / "d")
    assert not any((tmp_path / name).exists() for name in "abcd")


def test_command_line(expected: dict[str, Path], tmp_path: Path) -> None:
    with served(expected["source"], tmp_path) as server:
        words = [
            "paxml-to-megatron",
            "--input",
            f"{server.url}/ckpt/run",
            "--output",
            tmp_path / "out",
            "--dtype",
            "fp32",
        ]
        plan = command("checkpoint_convert", *words, "--plan")
        assert plan.returncode == 0, plan.stderr
        assert len(plan.stdout.splitlines()) == 1 + 48 + 1
    assert_refused(command("checkpoint_convert", *words, "--bandwidth-limit", "fast"), "--bandwidth-limit 'fast'")
    assert_refused(command("checkpoint_convert", *words, "--verify-input"), "for an address give --md5-list")
    words[2] = "ftp://host/a"
    assert_refused(command("checkpoint_convert", *words), "expected something local, gs://, s3://")
