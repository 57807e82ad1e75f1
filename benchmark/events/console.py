"""Lines for people, on standard output: one every few steps, one per evaluation."""

from collections.abc import Mapping
from typing import Any

from benchmark.events.event import Event


class Console:
    """``log_interval``: steps between step lines. Figures and units are named in the line."""

    name = "console"

    def __init__(self, log_interval: int) -> None:
        self._log_interval = log_interval
        self._eta = ""
        """What the next step line adds."""

    def write(self, event: Event) -> None:
        fields = event.metadata
        match event.key:
            case "step" if fields.get("skipped_in_a_row", 0) > 1:
                pass  # the guards say when a row of skipped steps begins, and when it ends
            case "step" if fields["iteration"] % self._log_interval == 0:
                skipped = " | SKIPPED: gradients are not finite" if fields["skipped"] else ""
                mfu = "" if fields["mfu"] is None else f" | MFU {fields['mfu']:.1%}"
                self._print(
                    f"step {fields['iteration']} | samples {fields['consumed_samples']:,} | loss {fields['loss']:.4f} "
                    f"| grad norm {fields['grad_norm']:.3f} | lr {fields['learning_rate']:.3e} "
                    f"| {fields['step_s']:.3f} s | {fields['tokens_per_s']:,.0f} tokens/s "
                    f"| {fields['tflops_per_device']:.2f} TFLOP/s per device{mfu} "
                    f"| {fields['memory_gib']:.2f} GiB{skipped}{self._eta}"
                )
                self._eta = ""
            case "evaluation":
                target = fields["target"]
                verdict = "" if target is None else f" (target {target})"
                self._print(
                    f"evaluation after {fields['trained_tokens']:,} tokens: "
                    f"log perplexity {fields['log_perplexity']:.5f}{verdict} in {fields['seconds']:.2f} s"
                )
            case "eta" if fields["after"] == "step":
                self._eta = f" | {_goal(fields)} in {spoken_duration(fields['seconds'])}"
            case "eta":
                self._print(_expected(fields))
            case "checkpoint":
                self._print(f"checkpoint after {fields['steps']} steps: training paused {fields['seconds']:.3f} s")
            case "message":
                self._print(str(event.value))

    def close(self) -> None:
        pass

    def _print(self, line: str) -> None:
        print(line, flush=True)


def spoken_duration(seconds: float) -> str:
    """ "1 h 12 min", "3 min 20 s", "45 s"; a negative one is none at all."""
    whole = max(0, round(seconds))
    if whole >= 3600:
        minutes = round(whole / 60)
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


def _goal(eta: Mapping[str, Any]) -> str:
    return "target" if eta["reaches_target"] else "end of training"


def _expected(eta: Mapping[str, Any]) -> str:
    """A line about the note ``eta``, with its interval."""
    tokens, low, high = (eta[f"target_tokens{end}"] for end in ("", "_low", "_high"))
    between = f" ({low:,} to {high:,})" if low < high else ""
    seconds, low_s, high_s = (spoken_duration(eta[f"seconds{end}"]) for end in ("", "_low", "_high"))
    between_s = f" ({low_s} to {high_s})" if low_s != high_s else ""
    missed = eta["target"] is not None and not eta["reaches_target"]
    goal = "target not expected before the end of training" if missed else f"{_goal(eta)} expected"
    return f"{goal} after {tokens:,} tokens{between}, in {seconds}{between_s}"
