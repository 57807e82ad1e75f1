"""What lies beside an output says what it was made of; only then is it left alone."""

import time
from pathlib import Path

import pytest

from checkpoint_convert.conversion.output_records import (
    already_made,
    write_folder_manifest,
    write_sums_and_manifest,
)
from checksums.md5_list import digest_folder, format_list, read_list
from stage.errors import InputError
from stage.manifest import Manifest, read_manifest


def made(folder: Path, name: str, source: Path | None = None) -> Path:
    """A folder with a file and its records."""
    output = folder / name
    output.mkdir()
    (output / "file").write_text(name)
    listing = format_list(digest_folder(output))
    if source is None:
        options: dict[str, int] = {"seed": 1}
        written = write_folder_manifest(
            output, output, listing, stage="first", options=options, inputs=[], packages=[], started=time.monotonic()
        )
    else:
        written = write_sums_and_manifest(
            output,
            output,
            listing,
            stage="second",
            options={"heads": 4},
            source=source,
            source_made_by=read_manifest(source),
            packages=["numpy"],
            started=time.monotonic(),
        )
    assert written == len(name)
    return output


def manifest_of(output: Path) -> Manifest:
    manifest = read_manifest(output)
    assert manifest is not None
    return manifest


def test_records_name_source_sums_and_bytes(tmp_path: Path) -> None:
    source = made(tmp_path, "source")
    output = made(tmp_path, "output", source)
    assert read_list(tmp_path / "output.md5") == digest_folder(output)
    manifest = manifest_of(output)
    assert (manifest.stage, manifest.options) == ("second", {"heads": 4})
    assert manifest.versions.keys() == {"python", "numpy"}
    (read,), (written,) = manifest.inputs, manifest.outputs
    assert (read.name, read.md5) == (str(source), manifest_of(source).outputs[0].md5)
    assert (written.name, written.files, written.bytes) == ("output", 1, 6)
    assert not (tmp_path / "source.md5").exists()


def test_what_is_made_is_left_alone(tmp_path: Path) -> None:
    source = made(tmp_path, "source")
    output = made(tmp_path, "output", source)
    assert already_made(source, output, stage="second", options={"heads": 4}, force=False)
    assert not already_made(source, output, stage="second", options={"heads": 4}, force=True)
    assert not already_made(source, tmp_path / "none", stage="second", options={"heads": 4}, force=False)
    with pytest.raises(InputError, match="exists and was made from another source or options"):
        already_made(source, output, stage="second", options={"heads": 8}, force=False)
    assert not already_made(source, output, stage="second", options={"heads": 8}, force=True)
    (source / "file").write_text("changed")
    with pytest.raises(InputError, match="exists and was made from another source or options"):
        already_made(source, output, stage="second", options={"heads": 4}, force=False)


def test_force_replaces_what_this_stage_made_and_nothing_else(tmp_path: Path) -> None:
    source = made(tmp_path, "source")
    output = made(tmp_path, "output", source)
    (output / "file").unlink()
    (output / "mine").touch()  # as many files as before
    with pytest.raises(InputError, match="mine: not made by second; move it away"):
        already_made(source, output, stage="second", options={"heads": 4}, force=True)
    (output / "also mine").touch()
    with pytest.raises(InputError, match="holds 2 files, 1 more than second made"):
        already_made(source, output, stage="second", options={"heads": 4}, force=True)
    with pytest.raises(InputError, match="second made it, and only what third made is replaced"):
        already_made(source, output, stage="third", options={"heads": 4}, force=True)
    for place in (source, tmp_path, source / "inside"):
        with pytest.raises(InputError, match=r"(holds|lies in) the input"):
            already_made(source, place, stage="second", options={}, force=True)
