"""The image that the Dockerfile begins with has the PyTorch that pyproject.toml asks for."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from tests.support import REPOSITORY

PYTORCH_OF_IMAGES = {"25.10": "2.9.0a0", "25.12": "2.10.0a0", "26.02": "2.11.0a0"}
"""By NVIDIA's release notes of these images."""


def test_the_image_has_the_pytorch_that_is_needed() -> None:
    image = re.search(r"^ARG IMAGE=nvcr\.io/nvidia/pytorch:([\d.]+)-py3$", _read("Dockerfile"), re.MULTILINE)
    assert image is not None
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    needed = next(one for one in map(Requirement, project["dependencies"]) if one.name == "torch")
    assert needed.specifier.contains(Version(PYTORCH_OF_IMAGES[image[1]]).base_version)


def _read(name: str) -> str:
    return (REPOSITORY / name).read_text()
