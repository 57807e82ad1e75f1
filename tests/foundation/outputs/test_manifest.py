"""Recipes and manifests: what an output depends on, what was made, and whether that still holds."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from foundation.errors import InputError
from foundation.file_formats.md5_list import format_list
from foundation.outputs.digest import md5_file, md5_text
from foundation.outputs.manifest import (
    Recipe,
    Record,
    Source,
    made_by,
    read_manifest,
    record_of,
    require_intact,
    source_of,
    versions_of,
    write_manifest,
)


def made(folder: Path) -> tuple[Recipe, Path]:
    source, output = folder / "in.txt", folder / "out.txt"
    source.write_text("in")
    output.write_text("out")
    recipe = Recipe("copy", {"mode": 1, "axes": (1, 2)}, [source_of(source)], versions_of("numpy"))
    write_manifest(output, made_by(recipe, [record_of(output, "out.txt", md5_file(output))], wall_s=1.0))
    return recipe, output


def test_a_manifest_holds_the_recipe(tmp_path: Path) -> None:
    recipe, output = made(tmp_path)
    manifest = require_intact(output)
    assert manifest is not None
    assert recipe.differences(manifest) == manifest.differences(recipe) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stage": "move"}, "the command is move, not copy"),
        ({"options": {"mode": 2, "axes": (1, 2)}}, "mode is 2, not 1"),
        ({"options": {"mode": 1}}, r"axes is None, not \[1, 2\]"),
        ({"versions": {"numpy": "1.0"}}, "version of numpy is 1.0, not"),
        ({"inputs": []}, r"there are 0 inputs, not 1; missing: \S+in\.txt$"),
        (
            {"inputs": [Source(name, 1, 2, f"md5:{name}") for name in "abc"]},
            r"there are 3 inputs, not 1; new: a and 2 more; missing: \S+in\.txt$",
        ),
        ({"bytes_version": 2}, "version 2 of the bytes that copy makes, not 1"),
    ],
)
def test_a_recipe_that_differs_says_how(change: dict[str, object], told: str, tmp_path: Path) -> None:
    recipe, output = made(tmp_path)
    manifest = read_manifest(output)
    assert manifest is not None
    (difference,) = replace(recipe, **change).differences(manifest)  # type: ignore[arg-type]
    assert re.match(told, difference)


def test_inputs_in_another_order_are_named_as_such() -> None:
    inputs = [Source(name, 1, 5, f"md5:{name}") for name in "abc"]
    (difference,) = Recipe("copy", {}, inputs[::-1]).differences(Recipe("copy", {}, inputs))
    assert difference == "the same inputs are in another order"


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["small", "large"])
@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_an_input_is_told_by_its_content(size: int, folder: bool, tmp_path: Path) -> None:
    """Names, places, permissions, links and, of small files, times do not count; any replaced content does."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a"
    file.write_bytes(b"x" * size)
    root = tmp_path / "in" if folder else file
    before, stats = source_of(root), file.stat()
    file.chmod(0o600)
    os.link(file, tmp_path / "link")
    assert source_of(root).identity == before.identity
    moved = root.rename(tmp_path / "moved")
    assert source_of(moved).identity == before.identity
    file = moved / "a" if folder else moved
    file.write_bytes(b"y" * size)
    os.utime(file, ns=(stats.st_atime_ns, stats.st_mtime_ns))
    assert source_of(moved).bytes == before.bytes
    assert source_of(moved).identity != before.identity


def test_damage_is_named(tmp_path: Path) -> None:
    _, output = made(tmp_path)
    output.write_text("OUT")
    with pytest.raises(InputError, match=r"out\.txt: its MD5 is another, out\.txt\.manifest\.json says otherwise"):
        require_intact(output)
    output.write_text("ou")
    with pytest.raises(InputError, match=r"out\.txt: 1 file of 2 bytes instead of 1 of 3"):
        require_intact(output)
    output.unlink()
    with pytest.raises(InputError, match=r"out\.txt: missing"):
        require_intact(output)
    (tmp_path / "out.txt.manifest.json").write_text("{")
    with pytest.raises(
        InputError, match=r"out\.txt\.manifest\.json: .*; remove it together with out\.txt, and make out\.txt again"
    ):
        require_intact(output)
    assert require_intact(tmp_path / "never made") is None


def test_a_folder_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "sub" / "b").write_bytes(b"678")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    os.utime(tmp_path / "a", ns=(5, 5))
    os.utime(tmp_path / "sub" / "b", ns=(7, 7))
    assert record_of(tmp_path, "in", None) == Record("in", 2, 8, None, 7)
    assert record_of(tmp_path / "a", "a", "md5") == Record("a", 1, 5, "md5", 5)


def test_identities_of_other_kinds_are_compared_by_size() -> None:
    """Versions 0.1 to 0.3 identified a checkpoint's files by their times, too."""
    old, new, larger = (
        Source("in", 1, size, f"{kind}:1") for size, kind in ((5, "md5"), (5, "samples"), (6, "samples"))
    )
    assert Recipe("copy", {}, [new]).differences(Recipe("copy", {}, [old])) == []
    assert Recipe("copy", {}, [larger]).differences(Recipe("copy", {}, [old])) != []
    (difference,) = Recipe("copy", {}, [Source("in", 1, 5, "head:1")]).differences(
        Recipe("copy", {}, [Source("there", 1, 5, "head:2")])
    )
    assert difference == "the content or time of modification of in is not that of there as it was"


def test_files_that_a_folder_has_more_or_less_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for name in "abc":
        (folder / name).write_text(name)
    sums = format_list({name: md5_file(folder / name) for name in "abc"})
    (tmp_path / "out.md5").write_text(sums)
    recipe = Recipe("copy", {}, [])
    write_manifest(folder, made_by(recipe, [record_of(folder, "out", md5_text(sums))], wall_s=1.0))
    (folder / "d").write_text("d")
    with pytest.raises(InputError, match=r"4 files of 4 bytes instead of 3 of 3; unexpected: d, out.*says"):
        require_intact(folder)
    (folder / "a").unlink()
    (folder / "b").unlink()
    with pytest.raises(InputError, match="2 files of 2 bytes instead of 3 of 3; unexpected: d; missing: a, b, out"):
        require_intact(folder)


def test_a_pipe_is_no_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: pipe, not a regular file"):
        source_of(tmp_path / "pipe")


def test_a_manifest_of_an_earlier_version_still_says_what_was_made(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("abc")
    record = {"name": "out", "files": 1, "bytes": 3, "md5": None, "mtime_ns": 1}
    fields = {
        "stage": "copy",
        "options": {},
        "inputs": [{**record, "name": "in"}],
        "outputs": [record],
        "versions": {},
    }
    (tmp_path / "out.manifest.json").write_text(json.dumps({**fields, "wall_s": 1.5}))
    manifest = require_intact(tmp_path / "out")
    assert manifest is not None
    assert Recipe("copy", {}, [source_of(tmp_path / "out")]).differences(manifest)
    assert manifest.bytes_version == 1  # versions of before bytes were numbered make the bytes of version 1
