"""A dataset of Hugging Face's hub at one commit: its files' sizes and sums, and downloads of them."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from foundation.errors import CheckFailed, InputError, first_line
from foundation.optional_packages import import_optional
from foundation.outputs.manifest import Source


class HubDataset:
    """One dataset at one commit: ``revision`` (a branch, a tag or a commit) is looked up once.

    Every method raises InputError, in one line, if the hub cannot be reached or refuses.
    """

    def __init__(self, repository: str, revision: str) -> None:
        self.repository = repository
        self._hub = import_optional("huggingface_hub", "huggingface_hub", "fetch")
        utils = import_optional("huggingface_hub.utils", "huggingface_hub", "fetch")
        utils.disable_progress_bars()
        utils.logging.set_verbosity_error()
        with self._asking():
            self.commit: str = self._hub.HfApi().dataset_info(repository, revision=revision).sha

    def describe(self, names: Sequence[str]) -> dict[str, Source]:
        """Return size and SHA-256 of each file, by its name. Raises InputError for a file that does not exist."""
        with self._asking():
            entries = self._hub.HfApi().get_paths_info(
                self.repository, list(names), repo_type="dataset", revision=self.commit
            )
        files = {
            entry.path: Source(
                f"{self.repository}@{self.commit}/{entry.path}", 1, entry.lfs.size, f"sha256:{entry.lfs.sha256}"
            )
            for entry in entries
            if entry.lfs is not None
        }
        for name in names:
            if name not in files:
                raise InputError(f"{self.repository} at {self.commit}: no large file {name}; try another --revision")
        return files

    def download(self, name: str, folder: Path) -> Path:
        """Fetch a file to ``folder/name``. An interrupted download resumes."""
        with self._asking():
            return Path(
                self._hub.hf_hub_download(
                    self.repository, name, repo_type="dataset", revision=self.commit, local_dir=folder
                )
            )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        # The library lets its HTTP client's errors through, and changes the client from version to version.
        try:
            yield
        except Exception as error:
            raise InputError(
                f"Hugging Face, dataset {self.repository}: {type(error).__name__}: {first_line(error)}; check the "
                "network, or take the files from a folder with --from"
            ) from error


def require_equal(path: Path, expected: Source, *, mend: str) -> str:
    """Compare size and SHA-256 with the hub's; return the MD5. Raises CheckFailed if they differ."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            sha256.update(block)
            md5.update(block)
    size, identity = path.stat().st_size, f"sha256:{sha256.hexdigest()}"
    if (size, identity) != (expected.bytes, expected.identity):
        raise CheckFailed(
            f"{path}: {size} bytes, {identity}; the hub has {expected.bytes} bytes, {expected.identity}; {mend}"
        )
    return md5.hexdigest()
