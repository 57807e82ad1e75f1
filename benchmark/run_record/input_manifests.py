"""The folder ``manifests/`` of a run: copies of the manifests of its data and of its initial checkpoint.

The run copies them when it begins, so that a package needs no file outside the run's folder.
"""

from collections.abc import Iterable
from pathlib import Path

from benchmark.run_record.file_names import MANIFESTS_FOLDER
from foundation.errors import InputError
from foundation.outputs.publish import write_text
from foundation.regular_files import children, is_regular, read_regular

MANIFEST_SUFFIX = ".manifest.json"
MOST_MANIFEST_BYTES = 16 << 20


def copy_manifests(run_dir: Path, manifests: Iterable[Path]) -> None:
    """Copy the manifests that exist. Of two with one name and other contents, the later gets a number.

    Raises InputError for a manifest that cannot be read, or is larger than any.
    """
    contents: dict[str, str] = {}
    for manifest in manifests:
        if not is_regular(manifest):
            continue
        try:
            content = read_regular(manifest, MOST_MANIFEST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{manifest}: {error}; expected the manifest that the stage wrote") from error
        stem, number = manifest.name.removesuffix(MANIFEST_SUFFIX), 1
        name = manifest.name
        while contents.get(name, content) != content:
            number += 1
            name = f"{stem}.{number}{MANIFEST_SUFFIX}"
        contents[name] = content
    if contents:
        (run_dir / MANIFESTS_FOLDER).mkdir(exist_ok=True)
    for name, content in contents.items():
        write_text(run_dir / MANIFESTS_FOLDER / name, content)


def copied_manifests(run_dir: Path) -> list[str]:
    """Return the names in the folder that are names of manifests; nothing without the folder."""
    return [path.name for path in children(run_dir / MANIFESTS_FOLDER) if path.name.endswith(MANIFEST_SUFFIX)]
