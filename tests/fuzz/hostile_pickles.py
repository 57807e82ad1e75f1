"""Pickles that try to run code, change classes, and take time or memory: known attacks, alone or within honest ones,
and operations drawn at random."""

import pickletools
import random
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

NAMES = (
    *("os system", "posix system", "builtins exec", "builtins eval", "builtins __import__", "builtins open"),
    *("builtins setattr", "builtins getattr", "builtins type", "subprocess Popen", "subprocess check_output"),
    *("socket getaddrinfo", "socket create_connection", "urllib.request urlopen", "shutil rmtree", "pathlib Path"),
    *("pathlib PurePosixPath", "pathlib PosixPath", "operator attrgetter", "functools partial", "types FunctionType"),
    *("torch load", "torch.hub load", "torch Size", "torch Tensor", "torch FloatStorage", "antigravity fly"),
    *("foundation.errors InputError", "foundation.regular_files read_regular", "collections OrderedDict"),
    *("torch.distributed.checkpoint.metadata Metadata", "torch.distributed.checkpoint.metadata MetadataIndex"),
    *("torch.distributed.checkpoint.filesystem _StorageInfo", "torch._utils _rebuild_tensor_v2"),
    "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata",
)
PUSHES: tuple[bytes, ...] = (
    *(b"N", b"\x88", b"K\x05", b"M\xff\xff", b"J\xff\xff\xff\x7f", b")", b"]", b"}", b"\x8f", b"\x8c\x01a", b"C\x01b"),
    *(b"G\x7f\xf8\0\0\0\0\0\0", b"\x8c\x0b/etc/passwd", b"\x8c\x07__str__", b"\x8a\x09" + b"\xff" * 9),
    *(b"(lp0\n", b"I01\n", b"L5L\n", b"F1e400\n", b"S'a'\n", b"Va\n"),
)
ACTIONS = b"(0012est\x85\x86\x87ua\x90\x91Rb\x81Qdlt"


def called(name: str, *arguments: str) -> bytes:
    """The operations that call a function."""
    module, _, function = name.partition(" ")
    texts = b"".join(b"X" + struct.pack("<I", len(text.encode())) + text.encode() for text in arguments)
    return b"c" + module.encode() + b"\n" + function.encode() + b"\n(" + texts + b"tR"


def shared(levels: int) -> bytes:
    """The operations of a tuple that holds the tuple of the level below twice."""
    places = [struct.pack("<I", 1_000_000 + level) for level in range(levels)]
    return b")" + b"".join(b"r" + place + b"0j" + place + b"j" + place + b"\x86" for place in places)


def attacks(outside: Path) -> Mapping[str, bytes]:
    """The operations of known attacks, each of which leaves a value on the stack; ``outside`` is a file to be made."""
    set_attribute = b"(N}\x8c\x07__str__\x8c\x0b/etc/passwdstb"
    return {
        "a process": called("posix system", f"touch {outside}"),
        "code": called("builtins exec", f"open({str(outside)!r}, 'w')"),
        "a file": called("builtins open", str(outside), "w"),
        "a name looked up": called("socket gethostbyname", "localhost"),
        "a module": b"cantigravity\nfly\n",
        "an attribute": b"cpathlib\nPurePosixPath\n" + set_attribute,
        "an attribute of metadata": b"ctorch.distributed.checkpoint.metadata\nMetadata\n" + set_attribute,
        "memory": b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R",
        "a shared tuple as a key": b"}" + shared(60) + b"Ns",
        "a shared tuple in a set": b"\x8f(" + shared(60) + b"\x90",
        "a shared tuple": shared(60),
        "nested lists": b"]" * 50_000 + b"a" * 49_999,
        "nested tuples": b")" + b"\x85" * 50_000,
        "nested tuples as a key": b"})" + b"\x85" * 50_000 + b"Ns",
        "a size of many axes": b"ctorch\nSize\n(" + b"K\x01" * 70_000 + b"t\x85R",
        "a long text": b"X\xff\xff\xff\x7fabc",
        "a long integer": b"\x8b\xff\xff\xff\x7f",
        "a distant place in the memo": b"Nr\xff\xff\xff\xff",
    }


def hostile_pickle(honest: bytes, outside: Path, draw: random.Random) -> bytes:
    """A known attack, alone or within ``honest``; or ``honest`` damaged; or operations at random."""
    kind = draw.choice(("alone", "before", "behind", "within", "damaged", "random"))
    attack = draw.choice(list(attacks(outside).values()))
    if kind == "alone":
        return b"\x80\x04" + attack + b"."
    if kind == "before":
        return b"\x80\x04" + attack + b"0" + honest
    if kind == "behind":
        return honest[:-1] + attack + draw.choice((b".", b"0.", b"\x86.", b"R.", b"b."))
    if kind == "random":
        return b"\x80\x04" + b"".join(_operation(draw) for _ in range(draw.randrange(60))) + b"."
    starts = [place for _, _, place in pickletools.genops(honest) if place]
    content = bytearray(honest)
    for _ in range(1 if kind == "within" else draw.randrange(1, 5)):
        start = draw.choice(starts)
        changes: tuple[Callable[[], bytes], ...] = (lambda: _operation(draw), lambda: draw.randbytes(1), bytes)
        inserted = attack + draw.choice((b"", b"0")) if kind == "within" else draw.choice(changes)()
        content[start : start + draw.randrange(3)] = inserted
    return bytes(content)


def _operation(draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.15:
        module, _, name = draw.choice(NAMES).partition(" ")
        return b"c" + module.encode() + b"\n" + name.encode() + b"\n"
    if kind < 0.55:
        return draw.choice(PUSHES)
    if kind < 0.7:
        return draw.choice((b"\x94", b"h" + bytes([draw.randrange(8)]), b"q" + bytes([draw.randrange(8)])))
    return bytes([draw.choice(ACTIONS)])
