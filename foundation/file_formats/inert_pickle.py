"""Read pickles written by strangers as data: nothing is imported, called, compared or hashed.

An interpreter of pickle's operations builds dictionaries, lists, tuples, texts and numbers. An object of a class, or
the result of a function, becomes a :class:`PickledObject`: the name, the arguments and the state as written. Python's
unpickler would build real objects: it sets attributes, of classes too, and hashes nested tuples for hours.

Tuples and lists may share their items many levels deep. So no caller may format, compare or search them before it has
checked the type of each item.
"""

import itertools
import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from foundation.errors import first_line

MOST_OPERATIONS = 1 << 26
"""Most operations of a pickle; each takes about half a microsecond and at most some 80 bytes of memory."""
LARGEST_INTEGER = 1 << 128
LONGEST_NAME = 500
"""Most characters of the name of a class or function, with its module."""
HASHED_INTEGERS = range(-(1 << 61) + 2, (1 << 61) - 1)
"""Integers whose hashes all differ."""
NAMES_IN_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Modules by the names that pickles of protocol 2 and older give them, which PyTorch writes."""
OUTSIDE_VALUE = "persistent_load"
"""Name of objects that stand for a value outside the pickle, such as the storage of a tensor in ``torch.save``."""


class UnsafePickle(ValueError):
    """A pickle that is damaged, too large, or names classes and functions that do not belong there."""


@dataclass(slots=True, eq=False, repr=False)
class PickledName:
    """A class or function that a pickle names, such as ``torch.Size``."""

    name: str


@dataclass(slots=True, eq=False, repr=False)
class PickledObject:
    """An object of a class, or the result of a function, as a pickle describes it."""

    name: str
    """Name of the class or function."""
    arguments: tuple[Any, ...]
    state: Any = None
    items: list[Any] | None = None
    """Items of an object that is a list or a set; keys and values, alternating, of a dictionary."""


def load_pickle(content: bytes, is_known: Callable[[str], bool] = lambda name: False) -> Any:
    """Return the content of a pickle.

    ``is_known``: whether the pickle may name a class or function, such as ``torch.Size``. Raises UnsafePickle if it
    names another one, for damage, and for more than MOST_OPERATIONS.
    """
    interpreter = _Interpreter(is_known)
    try:
        return interpreter.run(content)
    except UnsafePickle:
        raise
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        raise UnsafePickle(first_line(error)[:200]) from error


def attributes(value: Any, name: str) -> Mapping[str, Any]:
    """Return the attributes of an object of the class ``name``, given without its module.

    Raises UnsafePickle if ``value`` is anything else.
    """
    if type(value) is not PickledObject or value.name.rpartition(".")[2] != name:
        raise UnsafePickle(f"{kind_of_value(value)} instead of an object of {name}")
    if type(value.state) is not dict:
        raise UnsafePickle(f"an object of {name} without named attributes")
    return value.state


def kind_of_value(value: Any) -> str:
    """Describe the kind of a value in a few words; the value itself is not formatted, which could take hours."""
    return value.name if isinstance(value, PickledObject | PickledName) else type(value).__name__


class _Interpreter:
    """The stack and the memo of one reading."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """Lengths of the stack when it was marked."""
        self._memo: dict[Any, Any] = {}

    def run(self, content: bytes) -> Any:
        stack, memo = self._stack, self._memo
        handlers = {name: handler.__get__(self) for name, handler in HANDLERS.items()}
        handlers |= dict.fromkeys(PUSHED, stack.append)
        name = ""
        for operation, argument, _ in itertools.islice(pickletools.genops(content), MOST_OPERATIONS):
            name = operation.name
            if name == "MEMOIZE":  # this and the next are half of all operations
                memo[len(memo)] = stack[-1]
            elif name in RECALLED:
                stack.append(memo[argument])
            elif name in handlers:
                handlers[name](argument)
            else:
                raise UnsafePickle(f"the operation {name}, which is not read here")
        if name != "STOP":
            raise UnsafePickle(f"more than {MOST_OPERATIONS:,} operations")
        return stack.pop()

    def ignore(self, argument: Any) -> None:
        """Do nothing: the operation has no effect on the content."""

    def push_integer(self, argument: int) -> None:
        if abs(argument) > LARGEST_INTEGER:
            raise UnsafePickle(f"an integer of {argument.bit_length():,} bits")
        self._stack.append(argument)

    def push_true(self, argument: None) -> None:
        self._stack.append(True)

    def push_false(self, argument: None) -> None:
        self._stack.append(False)

    def push_dictionary(self, argument: None) -> None:
        self._stack.append({})

    def push_list(self, argument: None) -> None:
        self._stack.append([])

    def push_tuple(self, argument: None) -> None:
        self._stack.append(())

    def push_set(self, argument: None) -> None:
        self._stack.append(PickledObject("builtins.set", (), items=[]))

    def mark(self, argument: None) -> None:
        self._marks.append(len(self._stack))

    def drop(self, argument: None) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def drop_to_mark(self, argument: None) -> None:
        self._since_mark()

    def copy_top(self, argument: None) -> None:
        self._stack.append(self._stack[-1])

    def _since_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def list_since_mark(self, argument: None) -> None:
        items = self._since_mark()
        self._stack.append(items)

    def tuple_since_mark(self, argument: None) -> None:
        items = self._since_mark()
        self._stack.append(tuple(items))

    def frozen_set_since_mark(self, argument: None) -> None:
        items = self._since_mark()
        self._stack.append(PickledObject("builtins.frozenset", (), items=items))

    def dictionary_since_mark(self, argument: None) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def tuple_of_1(self, argument: None) -> None:
        self._stack.append((self._stack.pop(),))

    def tuple_of_2(self, argument: None) -> None:
        second, first = self._stack.pop(), self._stack.pop()
        self._stack.append((first, second))

    def tuple_of_3(self, argument: None) -> None:
        third, second, first = self._stack.pop(), self._stack.pop(), self._stack.pop()
        self._stack.append((first, second, third))

    def append_item(self, argument: None) -> None:
        item = self._stack.pop()
        self._extend([item])

    def append_items(self, argument: None) -> None:
        self._extend(self._since_mark())

    def set_item(self, argument: None) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def set_items(self, argument: None) -> None:
        self._set(self._since_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is PickledObject:
            if target.items is None:
                target.items = []
            target.items += items
        elif type(target) is list:
            target += items
        else:
            raise UnsafePickle(f"items for {kind_of_value(target)}")

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if len(items) % 2:
            raise UnsafePickle("a key without a value")
        if type(target) is PickledObject:
            self._extend(items)
        elif type(target) is dict:
            for number in range(0, len(items), 2):
                target[_as_key(items[number])] = items[number + 1]
        else:
            raise UnsafePickle(f"keys for {kind_of_value(target)}")

    def remember(self, argument: int) -> None:
        self._memo[argument] = self._stack[-1]

    def push_name(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push_name(NAMES_IN_PYTHON_2.get(module, module), name)

    def push_name_of_stack(self, argument: None) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._push_name(module, name)

    def _push_name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise UnsafePickle("a class or function whose name is no text")
        if len(module) + len(name) > LONGEST_NAME:
            raise UnsafePickle(f"a class or function whose name has {len(module) + len(name):,} characters")
        if not self._is_known(f"{module}.{name}"):
            raise UnsafePickle(f"it names {module}.{name}, which is not known here and could run code")
        self._stack.append(PickledName(f"{module}.{name}"))

    def result_of_call(self, argument: None) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if type(function) is not PickledName or type(arguments) is not tuple:
            raise UnsafePickle(f"a call of {kind_of_value(function)} with {kind_of_value(arguments)}")
        self._stack.append(PickledObject(function.name, arguments))

    def outside_value(self, argument: None) -> None:
        self._stack.append(PickledObject(OUTSIDE_VALUE, (self._stack.pop(),)))

    def set_state(self, argument: None) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is not PickledObject or target.state is not None:
            raise UnsafePickle(f"a state for {kind_of_value(target)}")
        target.state = state


def _as_key(value: Any) -> Any:
    """Return a key for a dictionary: the value itself if its hash is quick, otherwise an object that stands for it."""
    kind = type(value)
    if kind is str or kind is PickledObject or kind is bytes or kind is bool or value is None:
        return value
    return value if kind is int and value in HASHED_INTEGERS else PickledObject("key", (value,))


RECALLED = frozenset({"GET", "BINGET", "LONG_BINGET"})
PUSHED = (
    *("NONE", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
)
"""Operations that push their argument."""
HANDLERS: Mapping[str, Callable[..., None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _Interpreter.ignore),
    **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4"), _Interpreter.push_integer),
    "NEWTRUE": _Interpreter.push_true,
    "NEWFALSE": _Interpreter.push_false,
    "EMPTY_DICT": _Interpreter.push_dictionary,
    "EMPTY_LIST": _Interpreter.push_list,
    "EMPTY_TUPLE": _Interpreter.push_tuple,
    "EMPTY_SET": _Interpreter.push_set,
    "MARK": _Interpreter.mark,
    "POP": _Interpreter.drop,
    "POP_MARK": _Interpreter.drop_to_mark,
    "DUP": _Interpreter.copy_top,
    "TUPLE": _Interpreter.tuple_since_mark,
    "TUPLE1": _Interpreter.tuple_of_1,
    "TUPLE2": _Interpreter.tuple_of_2,
    "TUPLE3": _Interpreter.tuple_of_3,
    "LIST": _Interpreter.list_since_mark,
    "DICT": _Interpreter.dictionary_since_mark,
    "FROZENSET": _Interpreter.frozen_set_since_mark,
    "APPEND": _Interpreter.append_item,
    **dict.fromkeys(("APPENDS", "ADDITEMS"), _Interpreter.append_items),
    "SETITEM": _Interpreter.set_item,
    "SETITEMS": _Interpreter.set_items,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Interpreter.remember),
    "GLOBAL": _Interpreter.push_name,
    "STACK_GLOBAL": _Interpreter.push_name_of_stack,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Interpreter.result_of_call),
    "BUILD": _Interpreter.set_state,
    "BINPERSID": _Interpreter.outside_value,
}
"""What each further operation does, by the name that ``pickletools`` gives it. All others are refused."""
