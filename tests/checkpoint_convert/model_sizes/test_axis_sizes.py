"""Sizes of the axes: the same of every layout, and what contradicts itself is named."""

import json
import shutil
from pathlib import Path

import pytest

from checkpoint_convert.formats.array_table import MASTER_WEIGHTS, WEIGHTS
from checkpoint_convert.model_sizes.axis_sizes import megatron_axis_sizes, parameter_axis_sizes, paxml_axis_sizes
from checkpoint_convert.model_sizes.parameters import parameter_shapes
from stage.errors import InputError
from tests.checkpoint_convert.tiny import AXES, tiny_values, write_paxml

SIZES = {**AXES, "P": 2060}


@pytest.fixture(scope="module")
def paxml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_paxml(tmp_path_factory.mktemp("p") / "paxml", tiny_values(SIZES), SIZES)


def test_sizes_of_every_layout(paxml: Path, megatron: dict[str, Path]) -> None:
    assert paxml_axis_sizes(paxml) == SIZES
    assert megatron_axis_sizes(megatron["bf16"], MASTER_WEIGHTS, 4) == {**SIZES, "P": 208}
    assert megatron_axis_sizes(megatron["fp32"], WEIGHTS, 4) == {**SIZES, "P": 208}
    without_heads = {axis: SIZES[axis] for axis in "LHFV"} | {"P": 208}
    assert parameter_axis_sizes(Path("x"), parameter_shapes(without_heads)) == without_heads


def test_model_of_another_kind_is_refused(paxml: Path, tmp_path: Path) -> None:
    """Query and key alone, in all arrays that have the axis."""
    shutil.copytree(paxml, tmp_path / "source")
    for path in (tmp_path / "source").glob("mdl_vars.*combined_qkv.[wb]/.zarray"):
        metadata = json.loads(path.read_text())
        metadata["shape"][1] = 2
        path.write_text(json.dumps(metadata))
    with pytest.raises(InputError, match="are not those of a GPT-3 model"):
        paxml_axis_sizes(tmp_path / "source")


def test_parameters_that_do_not_fit_are_named() -> None:
    shapes = parameter_shapes(SIZES | {"P": 208})
    for change, complaint in (
        ({"embedding.word_embeddings.weight": (208,)}, "with shape [208], expected it with 2 axes"),
        ({"encoder.final_layernorm.bias": (35,)}, "with shape [35], expected it with shape [36]"),
        ({"encoder.layers.1.other": (1,)}, "other with shape [1], expected it is missing"),
    ):
        with pytest.raises(InputError) as error:
            parameter_axis_sizes(Path("folder"), {**shapes, **change})
        assert str(error.value).startswith("folder: ")
        assert complaint in str(error.value)


def test_axes_of_no_size_are_refused(paxml: Path, megatron: dict[str, Path], tmp_path: Path) -> None:
    for source, name in (
        (paxml, "mdl_vars.params.lm.final_ln.scale"),
        (megatron["fp32"], f"{WEIGHTS}embedding.word_embeddings.weight"),
    ):
        copy = tmp_path / source.name
        shutil.copytree(source, copy)
        path = copy / name / ".zarray"
        metadata = json.loads(path.read_text())
        metadata["shape"][0] = 0
        path.write_text(json.dumps(metadata))
        with pytest.raises(InputError, match="size 0"):
            paxml_axis_sizes(copy) if source == paxml else megatron_axis_sizes(copy, WEIGHTS, 4)
