"""Options that mean nothing are refused in a line, before anything is read or written."""

from pathlib import Path

from tests.checkpoint_convert.in_process import run
from tests.checkpoint_convert.tiny import ODD, MakePaxml


def test_options_out_of_range_are_refused() -> None:
    for option, value in (
        ("--disk-mb-per-s", "0"),
        ("--network-mb-per-s", "nan"),
        ("--nodes", "0"),
        ("--workers", "1000000000"),
        ("--memory-limit", "1.2.3GiB"),
    ):
        run("plan", option, value).refused(option, "expected")


def test_bad_usage_is_refused(make_once: MakePaxml, tmp_path: Path) -> None:
    words = ["paxml-to-megatron", "--output", tmp_path / "out", "--dtype", "bf16", "--input"]
    run(*words, tmp_path / "none").refused("no such folder")
    run(*words, make_once(ODD), "--memory-limit", "lots").refused("expected a size such as 8GiB")
    run(*words, make_once(ODD), "--memory-limit", "1KB").refused("--memory-limit is too small")
    run(*words, make_once(ODD), "--workers", 0).refused("--workers 0: expected 1 to 4096")
    run(*words, make_once(ODD), "--md5-list", "list").refused("--md5-list: compare a folder by")
    assert list(tmp_path.iterdir()) == []
