import pytest
import torch

from benchmark.slice_run.first_contact import runtime_features
from benchmark.slice_run.first_contact.runtime_features import messages, repeatable
from tests.benchmark.tiny import in_processes

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["context", "copies", "profiler", "streams"])
def test_what_a_cpu_has_is_found(name: str) -> None:
    assert getattr(runtime_features, name)(CPU)


def messages_on_a_cpu() -> str:
    return messages(CPU)


def repeated_on_a_cpu() -> str:
    return repeatable(CPU)


@pytest.mark.slow
def test_a_world_of_one_talks_to_itself() -> None:
    (found,) = in_processes(1, messages_on_a_cpu)
    assert found.startswith("gloo; the recorder has ")


@pytest.mark.slow
def test_the_same_bits_come_twice() -> None:
    assert in_processes(1, repeated_on_a_cpu) == ["the same bits twice"]
