"""The files a run reads: what is refused, what is named in the log."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foundation.outputs.manifest
from benchmark.config.benchmarks import LLAMA31_8B
from benchmark.config.run_sections import DataOptions
from benchmark.training.inputs import (
    count_validation_tokens,
    describe_validation,
    input_paths,
    open_data,
    open_validation,
    provenance,
    require_inputs,
)
from data_prep.sample_order.token_windows import open_token_windows
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter
from foundation.errors import InputError
from foundation.outputs.manifest import Recipe, made_by, manifest_path, read_manifest, record_of, write_manifest
from tests.benchmark.llama import TINY_LLAMA
from tests.benchmark.tiny import TINY, Inputs
from tests.support import changed


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"train_data_path": ()}, "--train-data-path is missing"),
        ({"valid_data_path": ("none",)}, "none.bin: no such file"),
        ({"checkpoint": None}, "--checkpoint is missing"),
        ({"checkpoint": Path("/none")}, "/none: no such folder"),
    ],
)
def test_missing_inputs_are_named(change: dict[str, Any], complaint: str, inputs: Inputs, tmp_path: Path) -> None:
    config = changed(inputs.config(tmp_path), **change)
    with pytest.raises(InputError, match=complaint):
        require_inputs(config.data, config.benchmark)


def test_data_of_another_tokenizer_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    model = dataclasses.replace(TINY.model, vocab_size=90)
    config = inputs.config(tmp_path, benchmark=dataclasses.replace(TINY, model=model))
    with pytest.raises(InputError, match="tokenised with a vocabulary of 100 pieces, but the model has 90"):
        require_inputs(config.data, config.benchmark)


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ([7] * 9000 + [100] + [7] * 9000, "holds token 100, but the vocabulary has 100: it was made with another"),
        ([7] * 8192 + [0] * 8192 + [7] * 2000, "bytes 16,384 to 32,767 are zeros, not tokens of a text"),
    ],
)
def test_token_files_that_no_manifest_describes_are_looked_at(
    ids: list[int], complaint: str, inputs: Inputs, tmp_path: Path
) -> None:
    with IndexedDatasetWriter(tmp_path / "more", np.dtype("<u2")) as writer:
        writer.append(np.array(ids), [len(ids)])
    config = changed(inputs.config(tmp_path), valid_data_path=(str(tmp_path / "more"),))
    with pytest.raises(InputError, match=rf"more\.bin: {complaint}"):
        require_inputs(config.data, config.benchmark)


def test_what_a_command_does_not_need_may_be_missing(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path)
    require_inputs(config.data, config.benchmark)
    require_inputs(changed(config, train_data_path=()).data, TINY, trains=False)
    require_inputs(changed(config, checkpoint=None).data, TINY, begins=False)


def test_no_run_trains_on_its_validation_set(inputs: Inputs, tmp_path: Path) -> None:
    """By its contents: a copy under another name, among others, too."""
    for ending in ("bin", "idx"):
        (tmp_path / f"more.{ending}").write_bytes((inputs.folder / f"valid.{ending}").read_bytes())
    config = inputs.config(tmp_path)
    for prefix in (inputs.folder / "valid", tmp_path / "more"):
        blended = changed(config, train_data_path=(*inputs.training, "0.1", str(prefix)))
        with pytest.raises(InputError, match=f"--train-data-path {prefix}: has the tokens of --valid-data-path"):
            require_inputs(blended.data, TINY)
        require_inputs(blended.data, TINY, trains=False)
    with (tmp_path / "more.bin").open("r+b") as file:
        file.write(b"\x01\x00\x02\x00")  # another one of the same size
    require_inputs(blended.data, TINY)


def test_changed_files_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    for name in ("valid.bin", "valid.idx", "valid.manifest.json"):
        (tmp_path / name).write_bytes((inputs.folder / name).read_bytes())
    config = changed(inputs.config(tmp_path), valid_data_path=(str(tmp_path / "valid"),))
    require_inputs(config.data, config.benchmark)
    with (tmp_path / "valid.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match=r"valid\.bin: .* bytes instead of .*, valid\.manifest\.json says otherwise"):
        require_inputs(config.data, config.benchmark)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder with a manifest, as conversion writes it."""
    folder = tmp_path / "converted"
    for name in ("word/.zarray", "word/0.0", "metadata.json"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(bytes(100))
    made = made_by(Recipe("paxml-to-megatron", {}, []), [record_of(folder, folder.name, 32 * "0")], wall_s=0.0)
    write_manifest(folder, made)
    return folder


def test_each_file_is_asked_for_once(
    checkpoint: Path, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = changed(inputs.config(tmp_path), checkpoint=checkpoint)
    asked: list[str] = []
    ask = foundation.outputs.manifest._stats_of

    def counted(files: tuple[str, list[str]]) -> Any:
        asked.extend(f"{files[0]}/{name}" for name in files[1])
        return ask(files)

    monkeypatch.setattr(foundation.outputs.manifest, "_stats_of", counted)
    require_inputs(config.data, config.benchmark)
    provenance(config.data)
    assert sorted(asked) == sorted(str(path) for path in checkpoint.rglob("*") if path.is_file())


def test_samples_of_a_run(inputs: Inputs, tmp_path: Path) -> None:
    config = inputs.config(tmp_path)
    data = open_data(config.data, TINY, seed=17)
    assert len(data.training) >= TINY.train_samples
    assert len(data.training.window(0)) == TINY.model.seq_length
    assert (
        data.validation_tokens
        == count_validation_tokens(config.data)
        == (inputs.folder / "valid.bin").stat().st_size // 2
    )
    whole = sorted(map(tuple, (data.validation.window(number) for number in range(len(data.validation)))))
    other = open_validation(config.data, TINY, seed=18)
    assert sorted(map(tuple, (other.window(number) for number in range(len(other))))) == whole


def test_provenance_names_each_input_with_its_sums(checkpoint: Path, inputs: Inputs, tmp_path: Path) -> None:
    config = changed(inputs.config(tmp_path), checkpoint=checkpoint)
    sets = [inputs.folder / name for name in ("train_0", "train_1", "valid")]
    assert input_paths(config.data) == [*sets, checkpoint]
    found = provenance(config.data)
    assert list(found) == [str(path) for path in (*sets, checkpoint)]
    for path in (*sets, checkpoint):
        manifest = read_manifest(path)
        assert manifest is not None
        assert found[str(path)]["manifest"] == str(manifest_path(path))
        assert found[str(path)]["md5"] == {record.name: record.md5 for record in manifest.outputs}
    without = inputs.whole_chunks
    assert provenance(changed(config, checkpoint=without).data)[str(without)] is None
    assert input_paths(changed(config, train_data_path=(), checkpoint=None).data) == [sets[2]]


@pytest.mark.parametrize("seed", [1, 2])
def test_first_sequences_are_those_of_the_file_in_its_order(seed: int, inputs: Inputs) -> None:
    prefix = inputs.validation[-1]
    everything = open_token_windows([prefix], sequence_length=10**4, num_samples=-1, seed=1).window(0)
    for path in ((prefix,), inputs.validation):
        windows = open_validation(DataOptions(valid_data_path=path), TINY_LLAMA, seed)
        assert len(windows) == 10
        for number in range(10):
            assert np.array_equal(windows.window(number), everything[16 * number : 16 * number + 17])
    assert windows.documents(0)


def test_first_sequences_are_of_one_dataset_that_has_as_many(inputs: Inputs) -> None:
    many = dataclasses.replace(TINY_LLAMA, evaluation_sequences=999)
    with pytest.raises(InputError, match="sequences of 16 tokens, but 999 are evaluated; give a larger set"):
        open_validation(DataOptions(valid_data_path=inputs.validation), many, 1)
    with pytest.raises(InputError, match="2 datasets, but 10 sequences of one are evaluated"):
        open_validation(DataOptions(valid_data_path=inputs.training), TINY_LLAMA, 1)


def test_validation_in_the_order_of_the_seed_is_megatron_cores(inputs: Inputs) -> None:
    """For the evaluations of the whole run, of which each reads the first windows; a blend of one is no blend."""
    by_seed = dataclasses.replace(TINY_LLAMA, validation_order="seed")
    prefix = inputs.validation[-1]
    rows = []
    for seed in (1, 2):
        expected = open_token_windows(
            [prefix], sequence_length=16, num_samples=3 * 12, seed=seed, plus_one=True, shuffle_documents=True
        )
        for path in ((prefix,), ("1.0", prefix)):
            windows = open_validation(DataOptions(valid_data_path=path), by_seed, seed)
            assert len(windows) == 10
            rows.append([windows.window(number).tolist() for number in range(10)])
            assert rows[-1] == [expected.window(number).tolist() for number in range(10)]
        assert windows.documents(3) == expected.documents(3)
    assert rows[0] == rows[1] != rows[2]


def test_the_order_of_the_validation_windows_is_told() -> None:
    assert describe_validation(TINY) is None
    assert describe_validation(LLAMA31_8B) == (
        "each evaluation scores 1,024 windows of the validation set: the first of its file (--validation-order file)"
    )
    told = describe_validation(dataclasses.replace(LLAMA31_8B, validation_order="seed"))
    assert told is not None and told.endswith("shuffled by the seed (--validation-order seed)")


def test_llama_trains_in_megatron_cores_order(inputs: Inputs) -> None:
    """For the windows of all steps that its reference asks for, whatever --train-samples says."""
    longer = dataclasses.replace(TINY_LLAMA, order_steps=50)
    for benchmark, samples in ((TINY_LLAMA, 72), (longer, 600), (dataclasses.replace(longer, train_samples=840), 840)):
        data = open_data(DataOptions(inputs.training, inputs.validation), benchmark, 7)
        expected = open_token_windows(
            inputs.training, sequence_length=16, num_samples=samples, seed=7, plus_one=True, shuffle_documents=True
        )
        for number in (0, 1, 70):
            assert np.array_equal(data.training.window(number), expected.window(number))
