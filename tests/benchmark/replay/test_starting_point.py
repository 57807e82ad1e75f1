"""Which checkpoint a replay starts from, and what is refused of a stranger's."""

from pathlib import Path

import pytest

from benchmark.evidence.chain_links import EVIDENCE, read_chain
from benchmark.replay.starting_point import parse_steps, progress_at, recorded_state, start_of
from stage.errors import InputError


def test_steps() -> None:
    assert parse_steps("176:192") == (176, 192)
    for text in ("", "3", "4:3", "-1:3", "1:2:3", "1e3:2", "1" * 20 + ":2", "٣:٤٤"):
        with pytest.raises(InputError, match="expected FIRST:LAST, such as 176:192; change --steps"):
            print(parse_steps(text))


def test_newest_checkpoint_at_or_before(run_dir: Path) -> None:
    chain = read_chain(run_dir / EVIDENCE)
    assert [start_of(run_dir, chain, first, 6) for first in (0, 1, 2, 3, 4, 6)] == [0, 0, 2, 2, 4, 6]
    with pytest.raises(InputError, match="has steps 1 to 6, not 7; change --steps"):
        start_of(run_dir, chain, 2, 7)


def test_state_that_the_chain_has(run_dir: Path) -> None:
    chain = read_chain(run_dir / EVIDENCE)
    assert chain.begin is not None
    assert recorded_state(chain, 0) == chain.begin.state
    state = recorded_state(chain, 4)
    assert state is not None
    assert state.weights == chain.steps[4].weights
    assert recorded_state(chain, 3) is None


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("digests.md5", "d41d8cd98f00b204e9800998ecf8427e  /etc/passwd\n", "lists '/etc/passwd', which is no file of"),
        ("digests.md5", "d41d8cd98f00b204e9800998ecf8427e  a/b\n", "lists 'a/b', which is no file of the checkpoint"),
        ("digests.md5", "d41d8cd98f00b204e9800998ecf8427e  gone\n", "lists 'gone'"),
        ("digests.md5", None, "missing, no file, or more than"),
        ("progress.json", "{}", "progress.json damaged or missing"),
        ("progress.json", " " * (17 << 20), "progress.json: missing, no file, or more than 16,777,216 bytes"),
    ],
)
def test_a_stranger_s_checkpoint_is_bounded(name: str, content: str | None, complaint: str, run_dir: Path) -> None:
    path = run_dir / "checkpoints" / "step_00000004" / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=complaint):
        progress_at(run_dir, 4)


def test_a_checkpoint_under_another_name(run_dir: Path) -> None:
    assert progress_at(run_dir, 4).steps == 4
    folder = run_dir / "checkpoints"
    (folder / "step_00000004").rename(folder / "step_00000005")
    with pytest.raises(InputError, match=r"its progress\.json is of 4 steps, not what its name says"):
        progress_at(run_dir, 5)
    (folder / "step_00000006" / "device").symlink_to("/dev/zero")
    with (folder / "step_00000006" / "digests.md5").open("a") as file:
        file.write("d41d8cd98f00b204e9800998ecf8427e  device\n")
    with pytest.raises(InputError, match="lists 'device', which is no file of the checkpoint"):
        progress_at(run_dir, 6)
