"""Addresses: what each names, what is refused, and no secret in any text."""

import pytest

from stage.errors import InputError
from stage.remote.object_address import is_address, parse_address

RETRIES = {"max_retries": 1}


def test_each_kind_of_address() -> None:
    bucket = parse_address("gs://mlperf-llm/a/b/").kvstore(3, RETRIES)
    assert (bucket["driver"], bucket["bucket"], bucket["path"]) == ("gcs", "mlperf-llm", "a/b/")
    assert bucket["context"] == {"gcs_request_concurrency": {"limit": 3}, "gcs_request_retries": RETRIES}
    other = parse_address("s3://ckpt/a", "http://127.0.0.1:9000/").kvstore(3, RETRIES)
    assert (other["driver"], other["endpoint"], other["path"]) == ("s3", "http://127.0.0.1:9000", "a/")
    assert "endpoint" not in parse_address("s3://ckpt").kvstore(3, RETRIES)
    web = parse_address("https://user:word@host:81/a?sig=abc&x=1").kvstore(3, RETRIES)
    assert (web["driver"], web["base_url"]) == ("http", "https://user:word@host:81/a/?sig=abc&x=1")
    assert [is_address(text) for text in ("s3://a", "a/b", "/a:/b", "x://")] == [True, False, False, True]


def test_secrets_are_in_no_text() -> None:
    address = parse_address("https://user:word@host/a?sig=abc%2F&x=1")
    assert str(address) == "https://host/a"
    said = address.without_secrets("GET https://user:word@host/a/k?sig=abc%2F&x=1 failed for word with sig=abc%2F")
    assert not any(secret in said for secret in ("word", "sig=abc"))


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("ftp://host/SECRET", None),
        ("file:///SECRET", None),
        ("s3://", None),
        ("s3://BUCKET_/a", None),
        ("s3://key:SECRET@bucket/a", None),
        ("gs://bucket/a?SECRET", None),
        ("gs://bucket:80/a", None),
        ("http:///a", None),
        ("http://host:99999/SECRET", None),
        ("http://host/a#SECRET", None),
        ("http://[::1/SECRET", None),
        ("gs://bucket/a", "http://host"),
        ("s3://bucket/a", "host:9000"),
        ("s3://bucket/a", "http://key:SECRET@host"),
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(text: str, endpoint: str | None) -> None:
    with pytest.raises(InputError, match=r"--input|--endpoint-url") as error:
        parse_address(text, endpoint)
    assert "SECRET" not in str(error.value)
