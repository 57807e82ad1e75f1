"""What ranks hand to their GPUs, as lists of commands, and whether GPUs with one hardware queue can do it.

CUDA_DEVICE_MAX_CONNECTIONS=1 gives a GPU one queue for all streams: it looks at the oldest command alone, and nothing
behind a command that has to wait is begun, in whatever stream it is. A message is begun when its stream has come to it,
and done when all its ranks have begun theirs. What may begin once may begin ever after, so what ends up begun does not
depend on how long anything takes: to go through the lists once, in any order, is to know for all delays.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch.distributed as dist
from torch import Tensor

from model.passes import parameter_group, tensor_group
from model.passes.whole_parameter import Pair

COMPUTE, HOST, COPIES = "compute", "host", "copies"


class Message(NamedTuple):
    """One message as all its ranks name it."""

    kind: str
    ranks: tuple[int, ...]
    number: int
    """Of the messages between these ranks."""
    elements: int


class Command(NamedTuple):
    stream: str
    """HOST: the host hands over nothing more before all is done."""
    after: int | None = None
    """Number of a command, of any stream, that has to be done first."""
    messages: tuple[Message, ...] = ()


class Begun:
    """What a pass waits for."""

    def __init__(self, commands: list[Command]) -> None:
        self._commands, self._number = commands, len(commands) - 1

    def wait(self) -> None:
        self._commands.append(Command(COMPUTE, self._number))


class Recorder:
    """Notes what a rank hands over, in the place of its messages."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._numbers: Counter[tuple[bool, tuple[int, ...]]] = Counter()

    def _message(self, kind: str, ranks: tuple[int, ...], elements: int) -> Message:
        between = kind == "send", ranks
        self._numbers[between] += 1
        return Message(kind, ranks, self._numbers[between], elements)

    def _begin(self, stream: str, *messages: Message) -> Begun:
        """After what was computed so far, as NCCL's streams wait for the current one."""
        self.commands.append(Command(COMPUTE))
        self.commands.append(Command(stream, len(self.commands) - 1, messages))
        return Begun(self.commands)

    def _collective(self, kind: str, group: Any, *tensors: Tensor) -> Begun:
        ranks = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
        size = sum(tensor.numel() for tensor in tensors)
        return self._begin(f"NCCL {ranks}", self._message(kind, ranks, size))

    def _single(self, kind: str, out: Tensor, own: Tensor, *, group: Any, async_op: bool) -> Begun:
        return self._collective(kind, group, out, own)

    def _of_pairs(self, kind: str, pairs: Sequence[Pair], group: Any) -> Begun:
        return self._collective(kind, group, *itertools.chain(*pairs))

    def _copied_gather(self, part: Tensor, group: Any) -> tuple[Tensor, Begun]:
        """As PyTorch's low-contention gather: a barrier, copies from all ranks, a barrier."""
        ranks = tuple(dist.get_process_group_ranks(group))
        self._begin(COPIES, self._message("barrier", ranks, part.numel()))
        self.commands += [Command(COPIES), Command(COPIES, None, (self._message("barrier", ranks, part.numel()),))]
        return part.new_zeros(part.shape[0] * len(ranks), *part.shape[1:]), Begun(self.commands)

    def _all_reduce(self, tensor: Tensor, op: Any = None, group: Any = None, async_op: bool = False) -> Begun | None:
        begun = self._collective("all-reduce", group, tensor)
        if async_op:
            return begun
        begun.wait()
        return None

    def _exchange(self, operations: Sequence[Any]) -> list[Begun]:
        """One kernel that sends and receives."""
        own = dist.get_rank()
        messages = []
        for one in operations:
            ends = (own, one.peer) if one.op is dist.isend else (one.peer, own)
            messages.append(self._message("send", ends, one.tensor.numel()))
        stream = f"NCCL {tuple(dist.get_process_group_ranks(operations[0].group))}"
        return [self._begin(stream, *messages)]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """No message is sent within; of what is computed only the order matters."""
        with ExitStack() as stack:
            for owner, name, function in (
                (tensor_group, "all_gather_single", partial(self._single, "all-gather")),
                (tensor_group, "reduce_scatter_single", partial(self._single, "reduce-scatter")),
                (tensor_group, "copied_gather", self._copied_gather),
                (parameter_group, "gather_all", partial(self._of_pairs, "all-gather")),
                (
                    parameter_group,
                    "scatter_all",
                    lambda *pairs_and_group: [self._of_pairs("reduce-scatter", *pairs_and_group)],
                ),
                (parameter_group, "sum_all", lambda tensors, group: self._collective("all-reduce", group, *tensors)),
                (dist, "all_reduce", self._all_reduce),
                (dist, "batch_isend_irecv", self._exchange),
            ):
                stack.enter_context(mock.patch.object(owner, name, function))
            yield

    def host_waits(self) -> None:
        self.commands.append(Command(HOST))


def never_begun(ranks: Sequence[Sequence[Command]], *, one_queue: bool) -> list[list[Command]]:
    """Go through the lists of all ranks; each rank's commands that can never begin. Without ``one_queue`` each stream
    has a queue of its own."""
    machines = [_Gpu(commands, one_queue=one_queue) for commands in ranks]
    begun: Counter[Message] = Counter()
    while sum(machine.go_on(begun) for machine in machines):
        pass
    return [machine.left() for machine in machines]


class _Gpu:
    def __init__(self, commands: Sequence[Command], *, one_queue: bool) -> None:
        self._commands = commands
        self._queues: dict[str, list[int]] = {}
        self._before: dict[int, int] = {}
        """The command before in the same stream."""
        newest: dict[str, int] = {}
        for number, command in enumerate(commands):
            self._queues.setdefault("" if one_queue else command.stream, []).append(number)
            if command.stream in newest:
                self._before[number] = newest[command.stream]
            newest[command.stream] = number
        self._handed_over = 0
        self._begun: set[int] = set()
        self._places = dict.fromkeys(self._queues, 0)

    def go_on(self, begun: Counter[Message]) -> bool:
        """Begin what can; whether anything could."""
        moved = False
        for queue, numbers in self._queues.items():
            while self._places[queue] < len(numbers) and self._may_begin(numbers[self._places[queue]], begun):
                number = numbers[self._places[queue]]
                self._begun.add(number)
                begun.update(self._commands[number].messages)
                self._places[queue] += 1
                moved = True
        return moved

    def _may_begin(self, number: int, begun: Counter[Message]) -> bool:
        command = self._commands[number]
        if command.stream == HOST:
            return all(self._done(one, begun) for one in range(number))
        first = {self._before.get(number), command.after}
        return all(one is None or self._done(one, begun) for one in first) and self._host_has_come_to(number)

    def _host_has_come_to(self, number: int) -> bool:
        while self._handed_over < number:
            if self._commands[self._handed_over].stream == HOST and self._handed_over not in self._begun:
                return False
            self._handed_over += 1
        return True

    def _done(self, number: int, begun: Counter[Message]) -> bool:
        return number in self._begun and all(begun[one] == len(one.ranks) for one in self._commands[number].messages)

    def left(self) -> list[Command]:
        return [command for number, command in enumerate(self._commands) if number not in self._begun]
