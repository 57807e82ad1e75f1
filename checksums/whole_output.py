"""All contents of a stage's output against its manifest: the part of verifying that costs reading it once."""

from pathlib import Path

from checksums.md5_list import digest_folder, format_list
from stage.digest import md5_file, md5_text
from stage.errors import InputError
from stage.manifest import manifest_path, require_intact


def require_whole(output: Path) -> None:
    """Raise InputError where ``output`` has no manifest, or is not to the bit what it says."""
    manifest = require_intact(output)
    if manifest is None:
        raise InputError(f"{output}: no {manifest_path(output).name} beside it, so nothing says what it should be")
    for record in manifest.outputs:
        path = output.parent / record.name
        found = md5_text(format_list(digest_folder(path))) if path.is_dir() else md5_file(path)
        if found != record.md5:
            raise InputError(
                f"{path}: MD5 {found}, but {manifest_path(output).name} says {record.md5}; it was changed since, "
                "make or copy it again"
            )
