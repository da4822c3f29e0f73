"""What all command-line programs of the library have in common.

Help and errors about flags must come at once. So a program's file does not
import TensorFlow or Keras at its top, and makes its flags from modules that
import neither (`tuning.config`, `training.options`, `serving.options`, ...).
`main` checks the flags first, and only then imports and calls the rest.
tests/test_programs.py checks this.
"""

import contextlib
import dataclasses
import os
import re
import signal
import sys
import threading
import traceback
import typing
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from types import FrameType
from typing import Any
from typing import NoReturn

from absl import app
from absl import flags

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
# Seconds after which a program that should end is told again.
_SECONDS_TO_END = 0.25
# {argument in Python: its flag}, if the two names differ.
_FLAGS_OF_ARGUMENTS: dict[str, str] = {}
# Arguments in the library's messages: by their names alone, and with values.
# Other words with a value belong to files or models: "the model's size=3".
_ARGUMENT = re.compile(
    r"`(?P<alone>\w+)`|(?:(?<=with )|(?<=Received: )|(?<=, ))(?P<given>\w+)="
)


def run(main: Callable[[list[str]], Any]) -> None:
    """Runs `main(argv)` with absl flags; bad input gives one line, no trace.

    The library raises `ValueError` for a wrong flag, file or configuration, and
    the system `OSError` for a full disk or a missing permission. TensorFlow has
    its own errors for object stores, e.g. for one that cannot be reached. They
    all become one line on stderr and exit code 1. BERT_TF_TRACEBACK=1 in the
    environment shows the trace. If another library raised the error, the input
    may be fine, and the line mentions that variable. Ctrl-C gives one line,
    too, and exit code 130.

    The library's messages name Python's arguments; the line names their flags
    (see `name_arguments`).

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
            if not isinstance(error, ValueError):
                return _refuse(error)
            if not _is_ours(error):
                return _refuse_with_hint(error)
            return _refuse(_with_flags(str(error)))
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
    # A background process is started with Ctrl-C ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        with interrupt_reported():
            app.run(guarded, flags_parser=_parse)
    finally:
        _tell_no_more()


@contextlib.contextmanager
def interrupt_reported() -> Iterator[None]:
    """Ends the program with one line and exit code 130 at Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        _tell_no_more()
        print(f"{_name()}: stopped by Ctrl-C", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)


def _report_interrupt(kind, error, trace):
    """Does what `interrupt_reported` does; a `sys.excepthook`."""
    if issubclass(kind, KeyboardInterrupt):
        with interrupt_reported():
            raise error
    sys.__excepthook__(kind, error, trace)


def interrupt(number: int, frame: FrameType | None) -> None:
    """All programs' handler of Ctrl-C: raises `KeyboardInterrupt`."""
    del number, frame
    _end_with(KeyboardInterrupt())


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
        _end_with(SystemExit(128 + number))

    signal.signal(signal.SIGTERM, end)


def _end_with(error: BaseException) -> NoReturn:
    """Raises an error in a signal handler, and again if it gets lost.

    NumPy and others call Python from C and ignore what it raises. So do Python
    itself in `__del__` and a library with a bare `except`. The program would
    then continue. So the error is raised again whenever no error is being
    handled. While it propagates, Python code runs only in `finally` and the
    like, which are not disturbed.
    """

    def tell_again(number, frame):
        if sys.exc_info()[1] is None:
            raise error

    signal.signal(signal.SIGALRM, tell_again)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_TO_END, _SECONDS_TO_END)
    raise error


def _tell_no_more():
    signal.setitimer(signal.ITIMER_REAL, 0)


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
                rest = flags.FLAGS(argv)
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


def name_arguments(**named: flags.FlagHolder) -> None:
    """Tells by which flags users of a program give arguments of the library.

    `run` puts the flags into the library's messages: "`is_frozen` must ..."
    becomes "--freeze must ...". Arguments with the names of their flags need
    not be told, and `define_flags` tells its own.

    Args:
        **named: {argument: its flag}.
    """
    for argument, flag in named.items():
        _FLAGS_OF_ARGUMENTS[argument] = flag.name


def _with_flags(message):
    """Returns a message of the library about arguments with their flags.

    A message that begins with a place in a file and a colon is about the file,
    whose keys may have the names of flags. It is returned as it is.
    """
    if ": " in message.partition("`")[0]:
        return message

    def flag(match):
        name = match["alone"] or match["given"]
        name = _FLAGS_OF_ARGUMENTS.get(name, name)
        if name not in flags.FLAGS:
            return match[0]
        return f"--{name}" if match["alone"] else f"--{name}="

    return _ARGUMENT.sub(flag, message)


def define_flags(
    dataclass: Any, only: Collection[str] | None = None, **names: str
) -> dict[str, flags.FlagHolder]:
    """Defines a flag for each `described.option`, and returns them by field.

    Args:
        dataclass: The class that has the options as fields. An option without a
            default makes a flag with the default None.
        only: Names of the fields to define flags for; None for all.
        **names: {field: name of its flag}, if the two names differ.
    """
    holders = {}
    for field in dataclasses.fields(dataclass):
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
            holder = flags.DEFINE_list(name, default, help_text)
        else:
            holder = _DEFINE[kind](name, default, help_text)
        holders[field.name] = holder
    name_arguments(**holders)
    return holders


def from_flags(dataclass: Any, **given: Any) -> Any:
    """Makes a dataclass from flags.

    Args:
        dataclass: Its class.
        **given: The fields that do not come from flags.

    Returns:
        The dataclass. Its other fields have the values of the flags of the same
        names.
    """
    names = {field.name for field in dataclasses.fields(dataclass)}
    values = {name: flags.FLAGS[name].value for name in names - given.keys()}
    return dataclass(**given, **values)


def require(**values: object) -> None:
    """Raises `ValueError` naming the first flag that has no value."""
    for name, value in values.items():
        if value is None or value == "":
            raise ValueError(f"--{name} must be given.")


def check_as_tuned(
    flag: flags.FlagHolder, is_right: bool, wanted: str, received: str
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


def numbers(flag: flags.FlagHolder) -> tuple[int, ...]:
    """Returns the whole numbers in a list flag.

    Raises:
        ValueError: If an entry is negative or no whole number; the message
            names the flag.
    """
    if not all(word.isdecimal() for word in flag.value):
        raise ValueError(
            f"--{flag.name} must be numbers with commas between. "
            f"Received: --{flag.name}={','.join(flag.value)}."
        )
    return tuple(map(int, flag.value))


# `python -m bert_tf.run_...` imports for half a second before it calls `run`.
# Other programs, which may import this module through the library, keep theirs.
_run_package = getattr(sys.modules["__main__"].__spec__, "parent", None) or ""
if _run_package.partition(".")[0] == "bert_tf":
    sys.excepthook = _report_interrupt
