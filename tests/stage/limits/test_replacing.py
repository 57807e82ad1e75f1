"""What may be replaced: what this stage made, never an input nor what holds one."""

import time
from pathlib import Path

import pytest

from stage.digest import md5_file
from stage.errors import InputError
from stage.limits.replacing import must_be_made, require_apart, require_replaceable
from stage.manifest import manifest_path, record_of, write_manifest


def made_by(stage: str, output: Path) -> Path:
    output.mkdir(parents=True)
    (output / "a").write_text("1")
    (output / "b").write_text("2")
    made = [record_of(output, output.name, None)]
    write_manifest(output, stage=stage, options={}, inputs=[], outputs=made, packages=[], started=time.monotonic())
    return output


def test_what_the_stage_made_may_be_replaced_even_where_files_are_gone(tmp_path: Path) -> None:
    output = made_by("convert", tmp_path / "out")
    (output / "a").unlink()
    assert require_replaceable(output, stage="convert", inputs=[tmp_path / "in"]) is not None
    assert require_replaceable(tmp_path / "none", stage="convert", inputs=[]) is None


def test_anything_else_is_refused(tmp_path: Path) -> None:
    other = made_by("export", tmp_path / "other")
    full = made_by("convert", tmp_path / "full")
    (full / "mine").touch()
    bare, damaged = tmp_path / "bare", made_by("convert", tmp_path / "damaged")
    bare.mkdir()
    manifest_path(damaged).write_text("{")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    for path, complaint in (
        (other, "export made it, and only what convert made is replaced"),
        (full, "holds 3 files, 1 more than convert made"),
        (bare, "no manifest says what it is"),
        (damaged, "no manifest says what it is"),
        (dangling, "no manifest says what it is"),
    ):
        with pytest.raises(InputError, match=complaint):
            require_replaceable(path, stage="convert", inputs=[])


def test_files_of_a_prefix(tmp_path: Path) -> None:
    prefix, files = tmp_path / "p", [tmp_path / "p.bin", tmp_path / "p.idx"]
    for path in files:
        path.write_text("x")
    made = [record_of(path, path.name, None) for path in files]
    write_manifest(prefix, stage="pre", options={}, inputs=[], outputs=made[:1], packages=[], started=0.0)
    with pytest.raises(InputError, match=r"p\.idx: not in .*p\.manifest\.json"):
        require_replaceable(prefix, stage="pre", inputs=[], made=files)
    write_manifest(prefix, stage="pre", options={}, inputs=[], outputs=made, packages=[], started=0.0)
    assert require_replaceable(prefix, stage="pre", inputs=[], made=files)


def test_inputs_and_what_holds_them_are_left_alone(tmp_path: Path) -> None:
    source = made_by("convert", tmp_path / "deep" / "in")
    linked, inside = tmp_path / "linked", source / "out"
    linked.symlink_to(source)
    for output, complaint in (
        (source, "holds the input"),
        (source.parent, "holds the input"),
        (tmp_path, "holds the input"),
        (tmp_path / "deep" / ".." / "deep", "holds the input"),
        (linked, "holds the input"),
        (inside, "lies in the input"),
        (linked / "deep" / "er", "lies in the input"),
    ):
        with pytest.raises(InputError, match=complaint):
            require_replaceable(output, stage="convert", inputs=[source])
    file = tmp_path / "shard.json"
    file.touch()
    require_apart(tmp_path / "out", [file])
    with pytest.raises(InputError, match="holds the input"):
        require_apart(file, [file])
    with pytest.raises(InputError, match=r"shard.json.manifest.json: is the manifest of the input .*shard.json"):
        require_apart(tmp_path / "deep" / ".." / "shard.json.manifest.json", [file])


def test_what_the_same_work_left_when_it_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    """Of two outputs one has its place; the manifest, which is written first, has both."""
    output, other, source = tmp_path / "out", tmp_path / "out.hashes", tmp_path / "in"
    source.write_text("input")
    for path in (output, other):
        path.write_text(path.name)
    made, inputs = [output, other], [record_of(source, str(source), None)]
    write_manifest(
        output,
        stage="choose",
        options={"count": 1},
        inputs=inputs,
        outputs=[record_of(path, path.name, md5_file(path)) for path in made],
        packages=[],
        started=time.monotonic(),
    )

    def to_do(count: int = 1, force: bool = False) -> bool:
        return must_be_made(output, stage="choose", options={"count": count}, inputs=[source], made=made, force=force)

    assert not to_do()
    assert to_do(force=True)
    for gone in ([other], [output], made):
        kept = {path: path.read_text() for path in gone}
        for path in gone:
            path.unlink()
        assert to_do()
        if len(gone) == 1:
            with pytest.raises(InputError, match="made otherwise; choose another --output or pass --force"):
                to_do(count=2)
        for path, text in kept.items():
            path.write_text(text)
    other.unlink()
    output.write_text("tuo")
    with pytest.raises(InputError, match="made otherwise"):
        to_do()
    assert output.read_text() == "tuo"
