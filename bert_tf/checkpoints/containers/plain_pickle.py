"""Pickles of plain values, read by a closed list of operations.

Python's `pickle` imports and calls whatever a file names. Here a name is a
word: only the functions that the caller gives are called, and only those
operations are known that `torch.save` writes for a dictionary of tensors. All
that is made is in proportion to the bytes of the pickle.
"""

import io
import pickletools
import struct
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from bert_tf import messages

_OPERATIONS = {opcode.code: opcode.name for opcode in pickletools.opcodes}
# The arguments of a fixed size.
_ARGUMENTS = {
    "PROTO": "<B",
    "BININT": "<i",
    "BININT1": "<B",
    "BININT2": "<H",
    "BINFLOAT": ">d",
    "BINPUT": "<B",
    "LONG_BINPUT": "<I",
    "BINGET": "<B",
    "LONG_BINGET": "<I",
}


class Name(str):
    """A name in a pickle: the module, a space, and the name there."""


class PlainPickle:
    """Reads pickles whose names mean what the caller says.

    Args:
        names: The names that are values, e.g. types.
        calls: {name: function of a tuple of arguments}. The arguments are
            values of the file and may be anything; the function raises
            `ValueError` for what it does not expect.
        find: Function of a persistent id, which may be anything too; returns
            the object outside the pickle that it stands for.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        calls: Mapping[str, Callable[[tuple], Any]] | None = None,
        find: Callable[[Any], Any] | None = None,
    ) -> None:
        self._names = names
        self._calls = calls or {}
        self._find = find
        self._stack: list[Any] = []
        # The stacks below the marks, the outermost first.
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        push = self._push
        self._operations: dict[str, Callable[[Any], None]] = {
            "PROTO": lambda _: None,
            "STOP": lambda _: None,
            **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1"), push),
            "BINFLOAT": push,
            **dict.fromkeys(("BINUNICODE", "SHORT_BINSTRING"), push),
            "NONE": lambda _: push(None),
            "NEWTRUE": lambda _: push(True),
            "NEWFALSE": lambda _: push(False),
            "EMPTY_DICT": lambda _: push({}),
            "EMPTY_LIST": lambda _: push([]),
            "EMPTY_TUPLE": lambda _: push(()),
            "TUPLE1": lambda _: push(self._pop(1)),
            "TUPLE2": lambda _: push(self._pop(2)),
            "TUPLE3": lambda _: push(self._pop(3)),
            "TUPLE": lambda _: push(self._pop_to_mark()),
            "SETITEM": lambda _: self._set_items(self._pop(2)),
            "SETITEMS": lambda _: self._set_items(self._pop_to_mark()),
            "APPEND": lambda _: self._append(self._pop(1)),
            "APPENDS": lambda _: self._append(self._pop_to_mark()),
            "MARK": self._mark,
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._put),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), self._get),
            "GLOBAL": self._name,
            "REDUCE": self._call,
            "BUILD": self._set_attributes,
            "BINPERSID": self._find_outside,
        }

    def read(self, stream: io.BytesIO) -> Any:
        """Returns the value of one pickle, and leaves the stream at its end.

        Raises:
            ValueError: If it is damaged, or holds a name or an operation that
                is not known.
        """
        self._stack, self._below, self._memo = [], [], {}
        operation = None
        while operation != "STOP":
            code = _read(stream, 1).decode("latin-1")
            operation = _OPERATIONS.get(code, repr(code))
            perform = self._operations.get(operation)
            if perform is None:
                raise ValueError(
                    f"the pickle has the operation {operation}, which weights "
                    "do not need."
                )
            perform(_read_argument(stream, operation))
        (value,) = self._pop(1)
        _check_there(not self._stack and not self._below)
        return value

    def _push(self, value):
        self._stack.append(value)

    def _pop(self, count):
        _check_there(len(self._stack) >= count)
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        return values

    def _pop_to_mark(self):
        _check_there(self._below)
        values = tuple(self._stack)
        self._stack = self._below.pop()
        return values

    def _top(self, kind):
        _check_there(self._stack and type(self._stack[-1]) is kind)
        return self._stack[-1]

    def _mark(self, _):
        self._below.append(self._stack)
        self._stack = []

    def _put(self, number):
        _check_there(self._stack)
        self._memo[number] = self._stack[-1]

    def _get(self, number):
        _check_there(number in self._memo)
        self._push(self._memo[number])

    def _append(self, values):
        self._top(list).extend(values)

    def _set_items(self, items):
        target = self._top(dict)
        _check_there(len(items) % 2 == 0)
        fill(target, zip(items[::2], items[1::2]))

    def _set_attributes(self, _):
        # Of a dictionary alone. torch keeps the versions of modules there,
        # which tell nothing of the weights.
        self._pop(1)
        self._top(dict)

    def _name(self, name):
        if name not in self._names and name not in self._calls:
            raise ValueError(
                f"the pickle names {messages.shortened(name)}, which weights "
                "do not need."
            )
        self._push(Name(name))

    def _call(self, _):
        function, arguments = self._pop(2)
        if type(function) is not Name or function not in self._calls:
            raise ValueError(
                f"the pickle calls {messages.shortened(function)}, which is no "
                "function."
            )
        if type(arguments) is not tuple:
            raise ValueError(
                f"the arguments of {function} must be a tuple. "
                f"Received: {messages.shortened(arguments)}."
            )
        self._push(self._calls[function](arguments))

    def _find_outside(self, _):
        (identifier,) = self._pop(1)
        if self._find is None:
            raise ValueError("the pickle must not refer to tensors.")
        self._push(self._find(identifier))


def fill(target: dict[str, Any], items: Iterable[tuple[Any, Any]]) -> None:
    """Puts items of a pickle into a dictionary.

    Args:
        target: The dictionary.
        items: Its new keys, which may be anything, and their values.

    Raises:
        ValueError: If a key is not a string, or is there already.
    """
    for key, value in items:
        # Hashing tuples in tuples may take forever.
        if type(key) is not str:
            raise ValueError(
                "the keys of a dictionary must be strings. "
                f"Received: {messages.shortened(key)}."
            )
        if key in target:
            raise ValueError(
                f"the name {messages.shortened(key)} is there more than once."
            )
        target[key] = value


def _read(stream, size):
    data = stream.read(size)
    if len(data) < size:
        raise ValueError("the pickle is cut short.")
    return data


def _read_argument(stream, operation):
    """Returns the argument of an operation, None without one."""
    if operation in _ARGUMENTS:
        layout = struct.Struct(_ARGUMENTS[operation])
        return layout.unpack(_read(stream, layout.size))[0]
    if operation == "LONG1":
        (size,) = _read(stream, 1)
        return int.from_bytes(_read(stream, size), "little", signed=True)
    if operation == "SHORT_BINSTRING":
        # A string of Python 2.
        (size,) = _read(stream, 1)
        return _read(stream, size).decode()
    if operation == "BINUNICODE":
        size = int.from_bytes(_read(stream, 4), "little")
        # Python writes halves of surrogate pairs so.
        return _read(stream, size).decode("utf-8", "surrogatepass")
    if operation == "GLOBAL":
        module, name = stream.readline(), stream.readline()
        return f"{module.decode()[:-1]} {name.decode()[:-1]}"
    return None


def _check_there(is_there):
    """Raises `ValueError` if what the operations need is not there."""
    if not is_there:
        raise ValueError("the pickle is damaged.")
