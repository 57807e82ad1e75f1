"""MD5 sums that lie beside downloaded files: MLCommons' downloads bring a list NAME.md5 along."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from foundation.disk_answers import entries_in
from foundation.errors import CheckFailed, InputError
from foundation.file_formats.md5_list import read_list
from foundation.outputs.digest import md5_file
from foundation.progress import progress


@dataclass(frozen=True)
class ListedSum:
    """The sum of a file in a list."""

    md5: str
    list_path: Path

    def require(self, path: Path, md5: str) -> None:
        """Raise CheckFailed if the MD5 of ``path`` is not the listed one."""
        if md5 != self.md5:
            raise CheckFailed(f"{path}: MD5 {md5}, expected {self.md5} ({self.list_path}); download it again")


def listed_sum(path: Path, folders: Sequence[Path] = ()) -> ListedSum | None:
    """Return the sum of ``path`` in a list beside it or in one of ``folders``; None if no list has the file's name.

    Files ``*.md5`` of another form, such as a sum without a name, are passed over.
    """
    for folder in dict.fromkeys([path.parent, *folders]):
        for list_path in (Path(entry) for entry in entries_in(folder) if entry.name.endswith(".md5")):
            with suppress(InputError):
                for name, md5 in read_list(list_path).items():
                    if Path(name).name == path.name:
                        return ListedSum(md5, list_path)
    return None


def compared_md5(path: Path, expected: ListedSum | None) -> str | None:
    """Read the file and compare its MD5 with the list; return it, or None without a list."""
    if expected is None:
        return None
    with progress("compare", path.stat().st_size, "bytes", files=1) as meter:
        md5 = md5_file(path, meter)
        meter(0, files=1)
    expected.require(path, md5)
    return md5
