"""The commands create and verify."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from checksums.common_file import COMMON
from checksums.folder_sums import ListComparison, compare_lists, digest_folder, without_leading_folders
from checksums.whole_output import ENDING, compare_with_manifest
from foundation.cli import JsonOption
from foundation.errors import InputError
from foundation.file_formats.md5_list import begins_list, format_list, read_list
from foundation.options.option_marks import Positional
from foundation.outputs.publish import published_file, require_same_kind
from foundation.plain_text import counted, folded

EXTRA_NAMED = 5


@dataclass(frozen=True)
class CreateListCommand(JsonOption):
    """Write the MD5 of every file below a folder, one 'md5  path' line each, as md5sum does.

    Example: python -m checksums create megatron_checkpoint --output megatron_checkpoint.md5
    """

    folder: Positional[Path]
    """Folder to read."""
    output: Path
    """List to write."""

    def run(self) -> None:
        require_same_kind(self.output, "--output", "a list of MD5 sums", begins_list)
        digests = digest_folder(self.folder, leave_out=self.output)
        if not digests:
            raise InputError(f"{self.folder}: holds no file; expected the folder of a dataset or checkpoint")
        with published_file(self.output) as partial:
            partial.write_text(format_list(digests), encoding="utf-8", errors="surrogateescape")
        self.tell(
            {"output": str(self.output), "files": len(digests)}, f"{self.output}: {counted(len(digests), 'file')}"
        )


@dataclass(frozen=True)
class VerifyListCommand(JsonOption):
    """Compare the files below a folder with a list. Exit status 0: all match; 1: something differs.

    In a Megatron zarr checkpoint metadata.json and common.pt may be spelled otherwise, with the published content:
    they are listed as MAY DIFFER. Adam's step, or any other value that differs, is a difference.

    Files that the list does not have are counted; where something differs, they are named as EXTRA.

    Example: python -m checksums verify preprocessed_c4_spm --manifest checksums/dataset_checksum.log
    """

    folder: Positional[Path]
    """Folder to read."""
    manifest: Path
    """List of paths relative to the folder, as GNU's md5sum or BSD's md5 writes it; or the NAME.manifest.json of a
    command's output NAME. With a manifest the folder is NAME, or the folder that NAME lies in."""

    def run(self) -> int:
        by_manifest = self.manifest.name.endswith(ENDING)
        result = compare_with_manifest(self.folder, self.manifest) if by_manifest else self._by_list()
        if self.json:
            print(json.dumps(asdict(result), indent=1))
        else:
            self._print(result)
        return 0 if result.holds else 1

    def _by_list(self) -> ListComparison:
        leading, listed = without_leading_folders(self.folder, read_list(self.manifest))
        if leading:
            print(f"{self.manifest}: its paths begin with {leading}, read as {self.folder}/", file=sys.stderr)
        return compare_lists(self.folder, listed, leave_out=self.manifest)

    def _print(self, result: ListComparison) -> None:
        for title, names in (
            ("CHANGED", result.changed),
            ("MAY DIFFER", result.may_differ),
            ("MISSING", result.missing),
            ("EXTRA", () if result.holds else result.extra[:EXTRA_NAMED]),
        ):
            for name in names:
                print(f"{title}  {self.folder / name}")
        if not result.holds and len(result.extra) > EXTRA_NAMED:
            print(f"EXTRA  and {len(result.extra) - EXTRA_NAMED} more; --json names all")
        counts = f"{len(result.changed)} changed, {len(result.missing)} missing"
        extra = f"; {len(result.extra):,} not in the list" if result.extra else ""
        if result.holds and result.extra:
            names = list(_unlisted(result.extra))
            extra += ":\n" + folded(f"  {', '.join(names[:EXTRA_NAMED])}{', …' * (len(names) > EXTRA_NAMED)}")
        may_differ = f", {len(result.may_differ)} may differ" if result.may_differ else ""
        print(f"{self.folder}: {_matching(len(result.matching))}, {counts}{may_differ}{extra}")


def _matching(count: int) -> str:
    return f"{counted(count, 'file')} {'matches' if count == 1 else 'match'}"


def _unlisted(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of files that the list lacks, with the reason if it is known; the files of a folder as one."""
    for first, count in Counter(name.partition("/")[0] for name in names).items():
        if first not in names:
            yield f"{first}/ ({counted(count, 'file')})"
        else:
            yield f"{first} (its bytes depend on PyTorch's version)" if first == COMMON else first
