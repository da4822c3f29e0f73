"""What every command-line program of the library does alike.

So that help and refusals come at once, a program's file imports neither
TensorFlow nor Keras at its top: its flags are made of modules that know neither
(`tuning.config`, `training.options`, `serving.options`, ...). Functions import
the modules that they work with. `main` checks the flags first, and imports and
calls what works only then. tests/test_programs.py holds this.
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
from types import FrameType
from typing import Any
from typing import NoReturn

from absl import app
from absl import flags

from bert_tf import allocator
from bert_tf import lean_imports
from bert_tf import quiet

# The flags that are defined here are their programs'.
flags.disclaim_key_flags()

_DEFINE: dict[Any, Callable[..., flags.FlagHolder]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

_BACKEND = "KERAS_BACKEND"
# There where Linux has a driver of NVIDIA's.
_NVIDIA = "/dev/nvidiactl"
# What a program returns when it refuses its input.
BAD_INPUT_EXIT_CODE = 1
# Seconds after which a program is told once more that it is to end.
_SECONDS_TO_END = 0.25


def run(main: Callable[[list[str]], Any]) -> None:
    """Runs `main(argv)` with absl flags; bad input is one line, not a trace.

    `ValueError` is what the library raises for a wrong flag, file or
    configuration, `OSError` what the system raises for a full disk or a
    missing permission: both are answered on stderr with exit code 1. The
    trace is there with BERT_TF_TRACEBACK=1 in the environment. If another
    library raised the error, the line names that variable: the input may be
    fine. Ctrl-C is answered in one line too, with exit code 130.

    What TensorFlow and Keras log is left out, unless the environment has a
    TF_CPP_MIN_LOG_LEVEL, which then holds for their lines from Python too.

    Training programs without an accelerator keep the memory that they free.
    """

    def guarded(argv):
        try:
            if os.environ[_BACKEND] != "tensorflow":
                raise ValueError(
                    f"{_BACKEND} must be tensorflow or not set. Received: "
                    f"{_BACKEND}={os.environ[_BACKEND]}."
                )
            if _steps_on_cpu():
                allocator.keep_freed()
            return main(argv)
        except (ValueError, OSError) as error:
            if os.environ.get("BERT_TF_TRACEBACK"):
                raise
            hint = ""
            if isinstance(error, ValueError) and not _is_ours(error):
                hint = " BERT_TF_TRACEBACK=1 shows the trace."
            return _refuse(f"{error}{hint}")
        except KeyboardInterrupt:
            _tell_no_more()
            print(f"{_name()}: stopped by Ctrl-C", file=sys.stderr)
            return 128 + signal.SIGINT

    # Not keras.json's.
    os.environ.setdefault(_BACKEND, "tensorflow")
    quiet.quieten()
    lean_imports.leave_out()
    # Those of the modules that programs share: --help shows key flags.
    for module in flags.FLAGS.flags_by_module_dict():
        if module.startswith("bert_tf."):
            flags.adopt_module_key_flags(sys.modules[module])
    # A process in the background is to ignore Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        app.run(guarded, flags_parser=_parse)
    finally:
        _tell_no_more()


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of Ctrl-C of all programs: raises `KeyboardInterrupt`."""
    del number, frame
    _end_with(KeyboardInterrupt())


def end_at_sigterm() -> None:
    """Lets SIGTERM end the program as an error does, with exit code 143.

    What is to be cleaned up then is: the processes that it started, and the
    files that are not whole. For programs that wait for such processes;
    trainings save their state instead.

    In a thread it does nothing: Python has signals in the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        return

    def end(number, _):
        print(f"{_name()}: stopped by SIGTERM", file=sys.stderr)
        _end_with(SystemExit(128 + number))

    signal.signal(signal.SIGTERM, end)


def _end_with(error: BaseException) -> NoReturn:
    """Raises an error in a handler of signals, and again where it is lost.

    NumPy and others call Python from C and pass over what that raises; so
    does Python itself in `__del__`, and a library with a bare `except`. The
    program would go on. While the error is on its way out, on the contrary,
    Python code is executed only where an error is handled, in a `finally` and
    the like, which are not disturbed.
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
    """Ends the program without a word if nobody reads on: `--help | head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(BAD_INPUT_EXIT_CODE)


def _parse(argv):
    try:
        with help_printed():
            rest = flags.FLAGS(argv)
    except flags.Error as error:
        reason = str(error)
        stop = "" if reason.endswith((".", "?")) else "."
        sys.exit(_refuse(f"{reason}{stop} --help shows all flags."))
    if len(rest) > 1:
        sys.exit(_refuse(f"Unexpected arguments: {' '.join(rest[1:])}."))
    return rest


def _steps_on_cpu():
    """Returns whether this is a training program, without an accelerator.

    Servers should give memory back. On an accelerator's host there is nothing
    to gain, and what its many threads lose by one arena was not measured.
    """
    # Of training_flags, which is on the floor of the programs.
    told = flags.FLAGS
    if "use_tpu" not in told or told["use_tpu"].value:
        return False
    return told["strategy"].value != "tpu" and not os.path.exists(_NVIDIA)


def _is_ours(error):
    """Returns whether the innermost frame of an error is of this package."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = frame.f_globals.get("__name__", "")
    return module == "__main__" or module.partition(".")[0] == "bert_tf"


def _refuse(reason):
    print(f"{_name()}: error: {reason}", file=sys.stderr)
    return BAD_INPUT_EXIT_CODE


def _name():
    return os.path.basename(sys.argv[0])


def define_flags(
    dataclass: Any, only: Collection[str] | None = None, **names: str
) -> dict[str, flags.FlagHolder]:
    """Defines a flag for each `described.option`, and returns them by field.

    Args:
        dataclass: The class that has the options as fields. A flag of one
            without a default has None.
        only: The fields to define flags of; None for all.
        **names: Of the flags that have not their fields' names.
    """
    holders = {}
    for field in dataclasses.fields(dataclass):
        told = field.metadata.get("help")
        if told is None or (only is not None and field.name not in only):
            continue
        name = names.get(field.name, field.name)
        has_default = field.default is not dataclasses.MISSING
        default: Any = field.default if has_default else None
        choices = field.metadata["choices"]
        # Of `int | None`, int.
        kind = (*typing.get_args(field.type), field.type)[0]
        if choices:
            holder = flags.DEFINE_enum(name, default, choices, told)
        elif typing.get_origin(field.type) is Sequence:
            holder = flags.DEFINE_list(name, default, told)
        else:
            holder = _DEFINE[kind](name, default, told)
        holders[field.name] = holder
    return holders


def from_flags(dataclass: Any, **told: Any) -> Any:
    """Makes a dataclass of flags.

    Args:
        dataclass: Its class.
        **told: The fields that are no flags.

    Returns:
        One whose other fields are the values of the flags of their names.
    """
    names = {field.name for field in dataclasses.fields(dataclass)}
    values = {name: flags.FLAGS[name].value for name in names - told.keys()}
    return dataclass(**told, **values)


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
        is_right: Whether its value is what the model was tuned to.
        wanted: What that is.
        received: Its value.
    """
    if flag.present and not is_right:
        raise ValueError(
            f"--{flag.name} must be {wanted}, as the model was tuned, or be "
            f"given with --do_train. Received: --{flag.name}={received}."
        )


def numbers(flag: flags.FlagHolder) -> tuple[int, ...]:
    """Returns the whole numbers that a flag of a list holds.

    Raises:
        ValueError: If one is none, or negative; the message names the flag.
    """
    if not all(word.isdecimal() for word in flag.value):
        raise ValueError(
            f"--{flag.name} must be numbers with commas between. "
            f"Received: --{flag.name}={','.join(flag.value)}."
        )
    return tuple(map(int, flag.value))
