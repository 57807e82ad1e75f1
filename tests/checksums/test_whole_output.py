"""All contents against the manifest."""

import time
from pathlib import Path

import pytest

from checksums.md5_list import digest_folder, format_list
from checksums.whole_output import require_whole
from stage.digest import md5_text
from stage.errors import InputError
from stage.manifest import record_of, write_manifest


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "a").mkdir(parents=True)
    (output / "a" / "0").write_bytes(b"12345")
    with pytest.raises(InputError, match=r"no out\.manifest\.json beside it"):
        require_whole(output)
    made = [record_of(output, "out", md5_text(format_list(digest_folder(output))))]
    write_manifest(output, stage="x", options={}, inputs=[], outputs=made, packages=[], started=time.monotonic())
    require_whole(output)
    (output / "a" / "0").write_bytes(b"12346")
    with pytest.raises(InputError, match=r"out: MD5 .*, but out\.manifest\.json says"):
        require_whole(output)
    (output / "a" / "0").write_bytes(b"1234")
    with pytest.raises(InputError, match="1 files of 4 bytes"):
        require_whole(output)
