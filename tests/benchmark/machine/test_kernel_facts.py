"""What chooses the kernels."""

from pathlib import Path

import torch

from benchmark.machine.kernel_facts import _cpu_name, kernel_facts


def test_of_a_cpu() -> None:
    facts = kernel_facts(torch.device("cpu"), deterministic=False)
    assert facts["deterministic"] is True  # as all kernels on a CPU
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == torch.get_num_threads()
    assert facts["device"]


def test_name_of_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Acme 9 @ 3 GHz\nmodel name\t: Acme 8\n")
    assert _cpu_name(tmp_path / "cpuinfo") == "Acme 9 @ 3 GHz"
    assert _cpu_name(tmp_path / "none") != ""
