"""What a file elsewhere is called, and how it is reached."""

import pytest

from stage.remote.object_address import parse_address
from stage.remote.remote_file import RemoteFile


@pytest.mark.parametrize(
    ("address", "shown", "suffixes"),
    [
        ("s3://bucket/en/a.json.gz", "s3://bucket/en/a.json.gz", [".json", ".gz"]),
        ("https://name:SECRET@host:8443/en/a.txt?token=SECRET", "https://host:8443/en/a.txt", [".txt"]),
        ("http://[::1]:80/a", "http://[::1]:80/a", []),
    ],
)
def test_its_name_tells_what_is_in_it_and_no_secret(address: str, shown: str, suffixes: list[str]) -> None:
    file = RemoteFile(parse_address(address))
    assert (str(file), file.suffixes) == (shown, suffixes)
    assert file.suffix == (suffixes[-1] if suffixes else "")
