"""Small messages between ranks, as MessagePack in tensors of bytes on the host: nothing that is received can run.

A message is a value that msgspec converts: numbers, texts, tuples, lists, dictionaries and dataclasses of these. Every
function is collective over its group, the group of all ranks by default. ``kind`` is the type of the message. A message
of another type raises msgspec.ValidationError.
"""

from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor

Message = TypeVar("Message")


def all_messages(message: Message, kind: type[Message] | Any, group: dist.ProcessGroup | None = None) -> list[Message]:
    """Return the messages of all ranks of the group, by rank."""
    content = _bytes_of(message)
    size = dist.get_world_size(group)
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[dist.get_rank(group)] = len(content)
    dist.all_reduce(lengths, group=group)
    padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
    padded[: len(content)] = content
    received = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(received, padded, group=group)
    return [_message_of(row[:length], kind) for row, length in zip(received, lengths.tolist(), strict=True)]


def messages_on_rank_0(
    message: Message, kind: type[Message] | Any, group: dist.ProcessGroup | None = None
) -> list[Message]:
    """Return the messages of all ranks on the group's rank 0, and none on other ranks."""
    content = _bytes_of(message)
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    lengths = torch.zeros(size, dtype=torch.int64)
    lengths[rank] = len(content)
    dist.all_reduce(lengths, group=group)
    padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
    padded[: len(content)] = content
    received = [torch.empty_like(padded) for _ in range(size)] if rank == 0 else None
    dist.gather(padded, received, group=group, group_dst=0)
    return [_message_of(row[:length], kind) for row, length in zip(received or (), lengths.tolist(), strict=False)]


def message_from_rank_0(message: object, kind: type[Message], group: dist.ProcessGroup | None = None) -> Message:
    """Return the message of the group's rank 0; those of other ranks are not sent, and may be None."""
    content = _bytes_of(message)
    length = torch.tensor(len(content))
    dist.broadcast(length, group=group, group_src=0)
    if dist.get_rank(group) != 0:
        content = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(content, group=group, group_src=0)
    received: Message = _message_of(content, kind)
    return received


def _bytes_of(message: object) -> Tensor:
    return torch.frombuffer(bytearray(msgspec.msgpack.encode(message)), dtype=torch.uint8)


def _message_of(content: Tensor, kind: Any) -> Any:
    return msgspec.msgpack.decode(content.numpy().tobytes(), type=kind)
