"""Lines for people, on standard output: one every few steps, one per evaluation."""

from benchmark.events.event import Event


class Console:
    """``log_interval``: steps between step lines. Figures and units are named in the line."""

    name = "console"

    def __init__(self, log_interval: int) -> None:
        self._log_interval = log_interval

    def write(self, event: Event) -> None:
        fields = event.metadata
        match event.key:
            case "step" if fields["iteration"] % self._log_interval == 0:
                skipped = " | SKIPPED: gradients are not finite" if fields["skipped"] else ""
                mfu = "" if fields["mfu"] is None else f" | MFU {fields['mfu']:.1%}"
                self._print(
                    f"step {fields['iteration']} | samples {fields['consumed_samples']:,} | loss {fields['loss']:.4f} "
                    f"| grad norm {fields['grad_norm']:.3f} | lr {fields['learning_rate']:.3e} "
                    f"| {fields['step_s']:.3f} s | {fields['tokens_per_s']:,.0f} tokens/s "
                    f"| {fields['tflops_per_device']:.2f} TFLOP/s per device{mfu} "
                    f"| {fields['memory_gib']:.2f} GiB{skipped}"
                )
            case "evaluation":
                target = fields["target"]
                verdict = "" if target is None else f" (target {target})"
                self._print(
                    f"evaluation after {fields['trained_tokens']:,} tokens: "
                    f"log perplexity {fields['log_perplexity']:.5f}{verdict} in {fields['seconds']:.2f} s"
                )
            case "checkpoint":
                self._print(f"checkpoint after {fields['steps']} steps: training paused {fields['seconds']:.3f} s")
            case "message":
                self._print(str(event.value))

    def close(self) -> None:
        pass

    def _print(self, line: str) -> None:
        print(line, flush=True)
