"""What all command-line programs of the library have in common.

Help and errors about flags must come at once. So a program's file does not
import TensorFlow or Keras at its top, and makes its flags from modules that
import neither (`tuning.config`, `runs.options`, `serving.options`, ...).
`main` checks the flags first, and only then imports and calls the rest.
tests/test_programs.py checks this.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import traceback
import typing
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from absl import app
from absl import flags

from bert_tf import flag_aliases
from bert_tf import quiet

# Flags that are defined here belong to the programs.
flags.disclaim_key_flags()

_DEFINE: dict[Any, Callable[..., flags.FlagHolder]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

_BACKEND = "KERAS_BACKEND"
# TensorFlow's allocator for GPUs, on the CPU, with no limit but the memory's.
ALLOCATOR = {
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(2**24),
}
# Exists where Linux has NVIDIA's driver.
_NVIDIA = "/dev/nvidiactl"
_TRACE_HINT = "BERT_TF_TRACEBACK=1 shows the trace."
# Exit code of a program that refuses its input.
BAD_INPUT_EXIT_CODE = 1


def run(main: Callable[[list[str]], Any]) -> None:
    """Runs `main(argv)` with absl flags; bad input gives one line, no trace.

    The library raises `ValueError` for a wrong flag, file or configuration, and
    the system `OSError` for a full disk or a missing permission. TensorFlow has
    its own errors for object stores, e.g. for one that cannot be reached. They
    all become one line on stderr and exit code 1. BERT_TF_TRACEBACK=1 in the
    environment shows the trace. If another library raised the error, the input
    may be fine, and the line mentions that variable. Ctrl-C gives one line,
    too, and exit code 130.

    The logs of TensorFlow and Keras are hidden, unless the environment has
    TF_CPP_MIN_LOG_LEVEL, which then also holds for their logs from Python.

    Training programs without an accelerator take their tensors from an
    allocator that keeps freed memory (`ALLOCATOR`).
    """

    def guarded(argv):
        try:
            if os.environ[_BACKEND] != "tensorflow":
                raise ValueError(
                    f"{_BACKEND} must be tensorflow or not set. Received: "
                    f"{_BACKEND}={os.environ[_BACKEND]}."
                )
            if _steps_on_cpu():
                for name, value in ALLOCATOR.items():
                    os.environ.setdefault(name, value)
            return main(argv)
        except (ValueError, OSError) as error:
            if os.environ.get("BERT_TF_TRACEBACK"):
                raise
            if isinstance(error, ValueError) and not _is_ours(error):
                return _refuse_with_hint(error)
            return _refuse(error)
        except Exception as error:
            if not _is_of_store(error) or os.environ.get("BERT_TF_TRACEBACK"):
                raise
            return _refuse_with_hint(error)

    # Takes precedence over keras.json.
    os.environ.setdefault(_BACKEND, "tensorflow")
    quiet.quieten()
    # --help shows the key flags of the program, which absl knows by its path:
    # add those of our modules, also of one that a console script has imported.
    for module in flags.FLAGS.flags_by_module_dict():
        if module.startswith("bert_tf."):
            for flag in flags.FLAGS.get_key_flags_for_module(module):
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    with interrupt_reported():
        app.run(guarded, flags_parser=_parse)


@contextlib.contextmanager
def interrupt_reported() -> Iterator[None]:
    """Ends the program with one line and exit code 130 at Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"{_name()}: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def end_at_sigterm() -> None:
    """Lets SIGTERM end the program as an error does, with exit code 143.

    This cleans up the processes that the program started and its unfinished
    files. It is for programs that wait for such processes; training programs
    save their state instead.

    In another thread it does nothing: Python handles signals only in the main
    thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(number, _):
        print(f"{_name()}: stopped by SIGTERM", file=sys.stderr)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)


@contextlib.contextmanager
def help_printed() -> Iterator[None]:
    """Ends the program silently if the reader stops early: `--help | head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BAD_INPUT_EXIT_CODE)


def _parse(argv):
    try:
        with help_printed():
            try:
                # Former names may stand in a --flagfile, too.
                argv = flags.FLAGS.read_flags_from_files(argv, force_gnu=False)
                rest = flags.FLAGS(flag_aliases.renamed(argv, {*flags.FLAGS}))
            except SystemExit:
                # Of --help: absl ends with 1, as if it were an error.
                sys.exit(0)
    except flags.Error as error:
        reason = str(error)
        stop = "" if reason.endswith((".", "?")) else "."
        sys.exit(_refuse(f"{reason}{stop} --help shows all flags."))
    if len(rest) > 1:
        sys.exit(_refuse(f"Unexpected arguments: {' '.join(rest[1:])}."))
    return rest


def _steps_on_cpu():
    """Returns whether this is a training program without an accelerator.

    glibc returns the large blocks of a step to the system, and takes them back
    page by page for the next operation: up to a fifth of a step. Servers should
    give memory back, and on the host of an accelerator there is nothing to
    gain.
    """
    # The flags of training_flags, which this module must not import.
    values = flags.FLAGS
    if "use_tpu" not in values or values["use_tpu"].value:
        return False
    return values["strategy"].value != "tpu" and not os.path.exists(_NVIDIA)


def _is_ours(error):
    """Returns whether the innermost frame of an error is in this package."""
    module = _module_of(error)
    return module == "__main__" or module.partition(".")[0] == "bert_tf"


def _is_of_store(error):
    """Returns whether `tf.io.gfile` raised it: for files, the `OSError`s."""
    return _module_of(error) == "tensorflow.python.lib.io.file_io"


def _module_of(error):
    """Returns the name of the module with the innermost frame of an error."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "")


def _refuse(reason):
    print(f"{_name()}: error: {reason}", file=sys.stderr)
    return BAD_INPUT_EXIT_CODE


def _refuse_with_hint(error):
    """Refuses because of another library's error, in one line."""
    # TensorFlow's and Beam's messages have several lines.
    reason = " ".join(str(error).split()).rstrip(".")
    return _refuse(f"{reason}. {_TRACE_HINT}")


def _name():
    return os.path.basename(sys.argv[0])


def define_flags(
    dataclass: Any, only: Collection[str] | None = None, **names: str
) -> dict[str, flags.FlagHolder]:
    """Defines a flag for each `described.option`, and returns them by field.

    Args:
        dataclass: The class that has the options as fields, and classes of
            further options. An option without a default makes a flag with the
            default None.
        only: Names of the fields to define flags for; None for all.
        **names: {field: name of its flag}, if the two names differ.
    """
    holders: dict[str, flags.FlagHolder] = {}
    for field in dataclasses.fields(dataclass):
        if dataclasses.is_dataclass(field.type):
            holders |= define_flags(field.type, only, **names)
            continue
        help_text = field.metadata.get("help")
        if help_text is None or (only is not None and field.name not in only):
            continue
        name = names.get(field.name, field.name)
        has_default = field.default is not dataclasses.MISSING
        default: Any = field.default if has_default else None
        choices = field.metadata["choices"]
        # `int` for `int | None`.
        kind = (*typing.get_args(field.type), field.type)[0]
        if choices:
            holder = flags.DEFINE_enum(name, default, choices, help_text)
        elif typing.get_origin(field.type) is Sequence:
            words = [*map(str, default or ())]
            holder = flags.DEFINE_list(name, words, help_text)
        else:
            holder = _DEFINE[kind](name, default, help_text)
        holders[field.name] = holder
    return holders


def from_flags(dataclass: Any, **given: Any) -> Any:
    """Makes a dataclass from flags.

    Args:
        dataclass: Its class.
        **given: The fields that do not come from flags, its own and those of
            the dataclasses that it holds.

    Returns:
        The dataclass. Its other fields have the values of the flags of the same
        names, or their defaults where there is no such flag.

    Raises:
        ValueError: If a field without a default has no value.
    """
    values = {}
    for field in dataclasses.fields(dataclass):
        name = field.name
        if name in given:
            values[name] = given[name]
        elif dataclasses.is_dataclass(field.type):
            values[name] = from_flags(field.type, **given)
        elif name in flags.FLAGS:
            values[name] = value_of(field)
            if field.default is dataclasses.MISSING:
                require(**{name: values[name]})
    return dataclass(**values)


def value_of(field: dataclasses.Field[Any]) -> Any:
    """Returns the value of the flag of a field.

    Raises:
        ValueError: If a list is to hold numbers, and does not.
    """
    flag = flags.FLAGS[field.name]
    if field.type in (Sequence[int], Sequence[float]):
        return _numbers(flag, *typing.get_args(field.type))
    return tuple(flag.value) if isinstance(flag.value, list) else flag.value


def require(**values: object) -> None:
    """Raises `ValueError` naming the first flag that has no value."""
    for name, value in values.items():
        if value is None or value == "":
            raise ValueError(f"--{name} must be given.")


def check_used(
    dataclass: Any, conditions: Collection[str] | None = None
) -> None:
    """Raises `ValueError` if a flag is given that nothing would read.

    Args:
        dataclass: The class of the options. In an option's metadata,
            `only_with` has the flags that must have certain values with it,
            {name: values}.
        conditions: Names of the flags that are looked at; None for all.
    """
    for field in dataclasses.fields(dataclass):
        if field.name not in flags.FLAGS or not flags.FLAGS[field.name].present:
            continue
        for other, values in field.metadata.get("only_with", {}).items():
            found = flags.FLAGS[other].value
            if found in values or not (
                conditions is None or other in conditions
            ):
                continue
            wanted = f"={' or '.join(map(str, values))}"
            raise ValueError(
                f"--{field.name} must be given with "
                f"--{other}{wanted.replace('=True', '')}. "
                f"Received: --{other}={found}."
            )


def check_as_tuned(
    flag: flags.FlagHolder | flags.Flag,
    is_right: bool,
    wanted: str,
    received: str,
) -> None:
    """Raises `ValueError` if a flag is given that contradicts a tuned model.

    Args:
        flag: The flag.
        is_right: Whether the model was tuned to its value.
        wanted: The value that the model was tuned to.
        received: The value of the flag.
    """
    if flag.present and not is_right:
        raise ValueError(
            f"--{flag.name} must be {wanted}, as the model was tuned, or be "
            f"given with --do_train. Received: --{flag.name}={received}."
        )


def _numbers(flag, kind):
    """Returns the numbers in a list flag."""
    try:
        return tuple(map(kind, flag.value or ()))
    except ValueError:
        raise ValueError(
            f"--{flag.name} must be numbers with commas between. "
            f"Received: --{flag.name}={','.join(flag.value)}."
        ) from None
