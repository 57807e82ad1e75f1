"""Print lines for people on standard output: one every few steps, one per evaluation."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmark.run_record.events.event import Event
from foundation.sizes import about, significant

RED, PLAIN = "\x1b[31m", "\x1b[0m"


class Console:
    """Print lines with their time, those of steps in at most 100 characters; on a terminal, failures are red."""

    name = "console"

    def __init__(self, log_interval: int, expected_steps: int) -> None:
        """``log_interval``: steps between step lines. ``expected_steps``: steps that the run is expected to take; a
        step line gives the share of them that is done."""
        self._log_interval, self._expected = log_interval, expected_steps
        self._coloured = sys.stdout.isatty()

    def write(self, event: Event) -> None:
        fields = event.metadata
        match event.key:
            case "step" if fields.get("skipped_in_a_row", 0) > 1:
                pass  # the guards say when a row of skipped steps begins, and when it ends
            case "step" if fields["steps"] % self._log_interval == 0:
                self._print(event, self._step_line(fields), wrong=fields["skipped"])
            case "evaluation":
                target = fields["target"]
                verdict = "" if target is None else f" (target {target})"
                text = f"evaluation after {fields['trained_tokens']:,} tokens: log perplexity "
                self._print(event, f"{text}{fields['log_perplexity']:.5f}{verdict} in {fields['seconds']:.2f} s")
            case "eta" if fields["after"] == "evaluation":
                self._print(event, _expected(fields))
            case "checkpoint":
                text = f"checkpoint after {fields['steps']} steps: training paused {fields['seconds']:.3f} s"
                self._print(event, text)
            case "message":
                self._print(event, str(event.value), wrong=fields.get("wrong", False))

    def close(self) -> None:
        pass

    def _step_line(self, fields: Mapping[str, Any]) -> str:
        share = fields["steps"] / self._expected
        speed = (
            f"{significant(fields['tflops_per_device'], 3)} TFLOP/s"
            if fields["mfu"] is None
            else f"MFU {fields['mfu']:.1%}"
        )
        return (
            f"step {fields['steps']}  {share:.0%}  loss {fields['loss']:.4f}  norm {fields['grad_norm']:.3f}  "
            f"lr {fields['learning_rate']:.2e}  {significant(fields['step_s'], 3)} s  "
            f"{fields['tokens_per_s']:,.0f} tokens/s  " + ("SKIPPED: not finite" if fields["skipped"] else speed)
        )

    def _print(self, event: Event, line: str, *, wrong: bool = False) -> None:
        text = f"{time.strftime('%H:%M:%S', time.localtime(event.time_ms / 1000))} {line}"
        print(f"{RED}{text}{PLAIN}" if wrong and self._coloured else text, flush=True)


def _goal(eta: Mapping[str, Any]) -> str:
    return "target" if eta["reaches_target"] else "end of training"


def _expected(eta: Mapping[str, Any]) -> str:
    """Describe the note ``eta`` with its interval, in one line."""
    tokens, low, high = (eta[f"target_tokens{end}"] for end in ("", "_low", "_high"))
    between = f" ({low:,} to {high:,})" if low < high else ""
    seconds, low_s, high_s = (about(eta[f"seconds{end}"]) for end in ("", "_low", "_high"))
    between_s = f" ({low_s} to {high_s})" if low_s != high_s else ""
    missed = eta["target"] is not None and not eta["reaches_target"]
    goal = "target not expected before the end of training" if missed else f"{_goal(eta)} expected"
    return f"{goal} after {tokens:,} tokens{between}, in {seconds}{between_s}"
