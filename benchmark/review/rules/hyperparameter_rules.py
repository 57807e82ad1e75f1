"""Hyperparameters that the rules derive from the batch size, and that no official tool checks.

The rules: docs/facts/mlperf_review.md 7.5, 7.6, 7.7.

Published logs round some of them in their own way (warm-up at batch size 2048: 198, 199 and 200), so what is within
:data:`ROUNDING` of the formula is a warning, and only what is farther off an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmark.results.judged import GPT3
from benchmark.review.findings import Deviation, Run, at

ROUNDING = 0.02
"""Largest share by which a published log is off a formula: 68 warm-up steps instead of 67."""
END_RATIO = 0.1
MODEL_KEYS = {
    "layers": (
        "num_layers", "n_layers", "n_layer", "num_hidden_layers", "layers", "num_decoder_layers", "decoder_layers",
    ),
    "heads": ("num_heads", "n_heads", "n_head", "num_attention_heads", "num_query_heads"),
    "hidden": (
        "hidden_size", "d_model", "n_embd", "model_dim", "emb_dim", "embed_dim", "hidden_dim", "embedding_size",
    ),
    "ffn": ("ffn_hidden_size", "d_ff", "intermediate_size", "ffn_dim", "mlp_dim", "d_inner", "n_inner"),
    "length": ("sequence_length", "seq_length", "seq_len", "encoder_seq_length", "max_position_embeddings"),
    "epsilon": ("layernorm_epsilon", "layer_norm_epsilon", "layer_norm_eps"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "parameters": (
        "num_parameters", "model_parameters", "parameter_count", "n_params", "num_params", "total_params",
        "total_parameters",
    ),
}  # fmt: skip
"""Published logs have num_layers, num_heads, hidden_size, ffn_hidden_size, sequence_length, layernorm_epsilon."""
PARAMETERS = (1.70e11, 1.80e11)
"""With and without embeddings, biases and the padding of the vocabulary."""


@dataclass(frozen=True)
class OwnKey:
    """A key that no rule asks for, and what it must say where a log has it."""

    key: str
    """Regular expression for the whole of it."""
    says: str
    """Regular expression found in its value."""
    due: str


NONE = r"^(0(\.0*)?|none|null|false|no|off|\[\]|\{\}|)$"
"""A value that says that something was not used."""
OWN_KEYS = (
    OwnKey(r"(train_|training_)?(dataset|data)(_name)?", r"c4", "C4"),
    OwnKey(r"optimizer(_name|_type)?", r"adam|mcore_distributed|distributed_optim", "Adam"),
    OwnKey(r"(limit_val_batches|eval_fraction|validation_fraction)", r"^1(\.0*)?$", "all of the validation subset"),
    OwnKey(r"(eval|val|valid|validation)_split(_name)?", r"val", "the validation subset"),
    OwnKey(r"(\w+_)?(sparsity|pruning)", NONE, "none"),
    OwnKey(r"(lora_rank|peft|adapter_dim|frozen_layers)", NONE, "none: all weights are trained"),
    OwnKey(
        r"(sliding|attention|attn|local_attention)_window(_size)?", rf"{NONE}|^(-1|2048|full)$", "all of 2,048 tokens"
    ),
    OwnKey(
        r"(num_query_groups|num_kv_heads|n_kv_heads?|num_key_value_heads)", rf"{NONE}|^96$", "96, one for each head"
    ),
    OwnKey(r"(multi|grouped)_query_attention", NONE, "none: keys and values for each head"),
    OwnKey(r"(moe_)?(num_(moe_|local_)?experts|n_experts?|expert_count)", rf"{NONE}|^1$", "none: a dense model"),
    OwnKey(r"layer_?drop(_rate)?|stochastic_depth(_rate)?|drop_path(_rate)?", NONE, "none: all layers"),
    OwnKey(r"curriculum(_\w+)?", rf"{NONE}|^2048$", "none: sequences of 2,048 tokens throughout"),
    OwnKey(r"(rampup_batch_size|batch_size_ramp(up|_up)?|batch_ramp(up)?)", NONE, "none: one batch size throughout"),
    OwnKey(r"(use_)?ema(_decay)?|weight_averaging|swa", NONE, "none: the weights that are trained are evaluated"),
    OwnKey(r"label_smoothing(_factor)?|z_loss(_\w+)?", NONE, "none"),
    OwnKey(r"(distillation_)?teacher(_model|_path)?|distillation(_\w+)?", NONE, "none: the reference checkpoint only"),
    OwnKey(
        r"(init|initial|pretrained|load|start)_checkpoint(_name|_path|_step)?",
        r"^(?!.*step\D{0,3}\d)|"
        r"step\D{0,3}0*(4000|3000|2000|1500|1000|750)\b",
        "the reference checkpoint, of 4,000 steps at 1,536",
    ),
    OwnKey(r"(data|sample)_(skip|stride)|skip_samples", rf"{NONE}|^1$", "none: every sample in its order"),
    OwnKey(r"weight_decay|wd", r"^0?\.10*$", "0.1"),
    OwnKey(r"(adam_)?beta_?1", r"^0?\.90*$", "0.9"),
    OwnKey(r"(adam_)?beta_?2", r"^0?\.950*$", "0.95"),
    OwnKey(r"adam_eps(ilon)?", r"^1(\.0*)?e-0?8$", "1e-8"),
    OwnKey(r"(gradient_clip|grad_clip|clip_grad)(_val|_norm|ping)?|max_grad_norm", r"^1(\.0*)?$", "1"),
    OwnKey(
        r"(max_|peak_|base_)?(lr|learning_rate)(_max)?",
        r"^0?\.0*$|^0$|^[0-2](\.\d+)?e-0?5$|^3(\.0*)?e-0?5$|"
        r"^\d(\.\d+)?e-(0?[6-9]|[1-9]\d)$|^0?\.0000[0-2]\d*$|^0?\.000030*$",
        "at most 3e-5",
    ),
    OwnKey(
        r"(train_|training_)?precision|compute_dtype",
        r"(fp|float|tf|bf|bfloat)_?(8|16|19|32|64)|u?int(4|8)\b|mixed|"
        r"hybrid|e4m3|e5m2|^(8|16|32|64)\b",
        "a format that the rules list",
    ),
    OwnKey(r"(target|quality_target|target_(accuracy|quality|loss|log_ppl|perplexity))", r"^2\.690*$", "2.69"),
)
"""Small letters in keys and values."""


def _formulas(run: Run) -> Iterator[tuple[str, float, int, str]]:
    """Key, logged value, due value and formula of everything that is ceil(reference samples / batch size)."""
    judged, size = run.judged or GPT3, run.global_batch_size
    if size is None or run.division == "open":
        return
    benchmark, rate = judged.benchmark, run.learning_rate
    reference = benchmark.start_global_batch_size
    for key, value, samples in (
        ("opt_learning_rate_warmup_steps", rate.warmup_steps, benchmark.optimizer.lr_warmup_samples),
        ("opt_learning_rate_decay_steps", rate.decay_steps, benchmark.optimizer.lr_decay_samples),
        ("init_checkpoint_step", run.init_checkpoint_step, benchmark.start_samples),
    ):
        if value is not None:
            yield key, value, judged.steps(samples, size), f"ceil({samples // reference} x {reference} / {size:g})"


def near_formula(run: Run) -> Iterator[Deviation]:
    for key, value, due, formula in _formulas(run):
        if value != due and abs(value - due) <= ROUNDING * due:
            yield _deviation(run, key, value, due, formula)


def far_from_formula(run: Run) -> Iterator[Deviation]:
    for key, value, due, formula in _formulas(run):
        if abs(value - due) > ROUNDING * due:
            yield _deviation(run, key, value, due, formula)


def base_learning_rate(run: Run) -> Iterator[Deviation]:
    """2e-5 up to batch size 3072, 3e-5 from 4096 on, either in between; the official checker lets either pass."""
    judged, size, base = run.judged or GPT3, run.global_batch_size, run.learning_rate.base
    if size is None or run.division == "open":
        return
    allowed = {rate for entry in judged.learning_rates if entry.above < size < entry.below for rate in entry.allowed}
    if base in allowed:
        return
    event = run.log.first("opt_base_learning_rate")
    if event is not None and allowed:
        due = f"{' or '.join(f'{rate:g}' for rate in sorted(allowed))} at batch size {size:g}"
        mend = "train with that peak learning rate, and log the configured number, not a float32"
        yield Deviation(run.log.path, event.line, f"opt_base_learning_rate {event.value!r}", due, mend)


def batch_too_large(run: Run) -> Iterator[Deviation]:
    yield from _outside_the_points(run, smaller=False)


def batch_too_small(run: Run) -> Iterator[Deviation]:
    """The official checker compares it with the smallest point, but the rules want points of its own."""
    yield from _outside_the_points(run, smaller=True)


def _outside_the_points(run: Run, smaller: bool) -> Iterator[Deviation]:
    judged, size = run.judged or GPT3, run.global_batch_size
    smallest = min(entry.above for entry in judged.learning_rates) + 1
    largest = max(entry.below for entry in judged.learning_rates) - 1
    event = run.log.first("global_batch_size")
    if size is None or event is None or run.division == "open":
        return
    if size < smallest if smaller else size > largest:
        due = f"{smallest} to {largest}"
        mend = "ask the task force for reference points at that batch size, 9 weeks before the deadline"
        yield Deviation(run.log.path, event.line, f"global_batch_size {size:g}", due, mend)


def end_learning_rate(run: Run) -> Iterator[Deviation]:
    event, base = run.log.first("opt_end_learning_rate"), run.learning_rate.base
    if event is None or event.number is None or base is None or run.division == "open":
        return
    due = END_RATIO * base
    if not _close(event.number, due) and not _close(event.number, END_RATIO):
        mend = "let the cosine end at a tenth of the peak"
        yield Deviation(run.log.path, event.line, f"opt_end_learning_rate {event.value!r}", f"{due:g}", mend)


def end_rate_as_ratio(run: Run) -> Iterator[Deviation]:
    event, base = run.log.first("opt_end_learning_rate"), run.learning_rate.base
    if event is None or event.number is None or base is None:
        return
    if _close(event.number, END_RATIO) and not _close(event.number, END_RATIO * base):
        found = f"opt_end_learning_rate {event.value!r}, the ratio"
        yield Deviation(run.log.path, event.line, found, f"{END_RATIO * base:g}", "log the learning rate itself")


def model_keys(run: Run) -> Iterator[Deviation]:
    """Sizes of the model, where a log has them, under the names that frameworks give them."""
    judged = run.judged or GPT3
    model = judged.benchmark.model
    due: dict[str, tuple[float, float]] = {
        "layers": (model.num_layers, model.num_layers),
        "heads": (model.num_attention_heads, model.num_attention_heads),
        "hidden": (model.hidden_size, model.hidden_size),
        "ffn": (4 * model.hidden_size, 4 * model.hidden_size),
        "length": (model.seq_length, model.seq_length),
        "epsilon": (1e-5, 1e-5),
        "vocabulary": (model.vocab_size - 1, model.padded_vocab_size),
        "parameters": PARAMETERS,
    }
    for size, keys in MODEL_KEYS.items():
        low, high = due[size]
        for event in (event for key in keys for event in run.log.all(key)):
            if event.number is None or not low <= event.number <= high:
                allowed = f"{low:g}" if low == high else f"{low:,.0f} to {high:,.0f}"
                mend = "train the benchmark's model: its size is not free in either division's checks"
                yield at(run, event, f"{event.key} {event.value!r:.60}", f"{allowed}, of GPT-3 175B", mend)
                break


def own_keys(run: Run) -> Iterator[Deviation]:
    """What a log says of data, optimizer, evaluation and weights under names of its own."""
    if not (run.judged or GPT3).official or run.division == "open":
        return
    for key, own in ((key, own) for key in run.log.by_key for own in OWN_KEYS if re.fullmatch(own.key, key.lower())):
        for event in run.log.all(key):
            if isinstance(event.value, str | int | float | None) and not re.search(
                own.says, f"{event.value}".lower()[:200]
            ):
                mend = "say what was trained, on what, and what was evaluated"
                yield at(run, event, f"{key} {event.value!r:.60}", own.due, mend)
                break


def batch_splits(run: Run) -> Iterator[Deviation]:
    steps, size = run.gradient_accumulation_steps, run.global_batch_size
    event = run.log.first("gradient_accumulation_steps")
    if event is not None and steps and size and steps > 0 and (size % steps or steps > size):
        found = f"gradient_accumulation_steps {steps:g} with global_batch_size {size:g}"
        yield Deviation(
            run.log.path, event.line, found, "a divisor of the batch size", "log the micro-batches per step"
        )


def _deviation(run: Run, key: str, value: float, due: int, formula: str) -> Deviation:
    event = run.log.first(key)
    line = None if event is None else event.line
    return Deviation(run.log.path, line, f"{key} {value:g}", f"{due} = {formula}", "use the rules' formula, rounded up")


def _close(left: float, right: float) -> bool:
    return abs(left - right) <= 1e-9 * abs(right)
