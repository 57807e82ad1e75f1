"""Make a random checkpoint in PAXML's layout, "step 4000" of a small model, from which the rehearsal starts.

The values depend on the seed and the sizes alone: they are integers of NumPy's frozen legacy generator, scaled by
powers of two, so that neither rounding nor a math library affects them.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from checkpoint_convert.formats.array_table import ARRAYS, WEIGHTS, Array, groups
from checkpoint_convert.formats.step_files import write_counters
from checkpoint_convert.formats.zarr_arrays import TENSORSTORE_FAILS, create_array
from checksums.folder_sums import digest_folder
from foundation.errors import InputError, first_line
from foundation.file_formats.md5_list import format_list
from foundation.outputs.digest import md5_text
from foundation.outputs.manifest import Recipe, versions_of
from foundation.outputs.resumable_output import resumable_output
from foundation.sizes import require_between

RandomValues = npt.NDArray[np.float32]

STEP = 4000
LARGEST_SIZE = 1 << 20
"""Largest size of an axis; the benchmark's have 51,200 at most."""
LARGEST_SEED = (1 << 32) - 1
GZIP = {"id": "gzip", "level": 1}
MATRIX_RANGE = 2.0**-5
"""Range of weights: they are uniform in +-1/32, a standard deviation of 0.018."""
VECTOR_RANGE = 2.0**-8
"""Range of biases and of LayerNorm gains minus one."""
EXP_AVG_RANGE = 2.0**-16
EXP_AVG_SQ_RANGE = 2.0**-24


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of the model."""

    layers: int
    """Transformer blocks."""
    hidden: int
    """Hidden size; a multiple of the heads."""
    heads: int
    """Attention heads."""
    vocab: int
    """Rows of the word embedding, including padding."""
    positions: int = 2048
    """Rows of the position embedding."""

    def by_axis(self) -> dict[str, int]:
        """Return sizes by axis (``array_table.py``). Raises InputError if a size is out of range or the heads do not
        divide the width."""
        for name, value in asdict(self).items():
            require_between(value, 1, LARGEST_SIZE, f"--{name}")
        if self.hidden % self.heads:
            raise InputError(f"--heads {self.heads}: does not divide --hidden {self.hidden}; change one of them")
        heads, hidden = self.heads, self.hidden
        sizes = {"L": self.layers, "C": 3, "N": heads, "D": hidden // heads, "H": hidden, "F": 4 * hidden}
        return {**sizes, "V": self.vocab, "P": self.positions}


def write_random_paxml(
    output: Path,
    *,
    seed: int,
    sizes: ModelSizes,
    compress: bool = True,
    layers_together: bool = True,
    force: bool = False,
) -> bool:
    """Write the checkpoint; return False if it is already there.

    ``layers_together``: chunks hold all layers, else one each. Raises InputError if the folder holds something else.
    """
    require_between(seed, 0, LARGEST_SEED, "--seed")
    by_axis = sizes.by_axis()
    options = {"seed": seed, **asdict(sizes), "compress": compress, "layers_together": layers_together}
    recipe = Recipe("random-paxml", options, [], versions_of("tensorstore"))
    with resumable_output(output, recipe, force=force) as work:
        if work is None:
            return False
        folder = work.new_path()
        random = np.random.RandomState(seed)
        for group in groups("fp32"):
            for array in ARRAYS:
                shape = array.paxml_shape(by_axis)
                path = folder / (group.paxml_name(array))
                chunks = (*shape[:-1], shape[-1] // 4 if shape[-1] % 4 == 0 else shape[-1])  # as a mesh shards it
                if array.stacked and not layers_together:
                    chunks = (1, *chunks[1:])
                values = _values(random, array, group.megatron[0], shape)
                try:
                    create_array(path, shape, "float32", chunks, GZIP if compress else None).write(values).result()
                except TENSORSTORE_FAILS as error:  # TensorStore's, of a full disk say
                    raise InputError(f"{path}: cannot be written ({first_line(error)[-200:]})") from error
        write_counters(folder, STEP, sizes.layers)
        md5 = md5_text(format_list(digest_folder(folder)))
        work.publish({output: (folder, md5)}, [], {"adam_step": STEP})
    return True


def _values(random: np.random.RandomState, array: Array, prefix: str, shape: tuple[int, ...]) -> RandomValues:
    integers = random.randint(-(1 << 23), 1 << 23, size=shape)
    uniform: RandomValues = integers.astype(np.float32) * np.float32(2.0**-23)
    if prefix == WEIGHTS:
        is_vector = array.megatron.endswith(".bias") or "layernorm" in array.megatron
        return uniform * np.float32(VECTOR_RANGE if is_vector else MATRIX_RANGE)
    if "exp_avg_sq" in prefix:
        return np.abs(uniform) * np.float32(EXP_AVG_SQ_RANGE)
    return uniform * np.float32(EXP_AVG_RANGE)
