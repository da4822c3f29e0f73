r"""Compiles pre-training for TPU chips without a TPU; prints what it takes.

    make tpu-check

or, if jax and libtpu are installed beside bert_tf,

    python benchmarks/tpu.py --results_dir=build/tpu

Each cell is compiled in its own process, which takes minutes, and stored when
it is done. Rerun the program to compile missing cells. Remove the folder after
you change the model. Prints tables in Markdown: what libtpu's compiler reports
for the step of `run_pretraining` in mixed bfloat16 on one chip, and for the
same model under KERAS_BACKEND=jax on four; and an estimate of what the paper's
pre-training would cost (tpu_costs.py).
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import tpu_costs
from absl import flags

from bert_tf import program
from bert_tf.config import BertConfig
from bert_tf.training import health

_RESULTS_DIR = flags.DEFINE_string(
    "results_dir", "build/tpu", "Folder that stores the cells."
)
_CELLS = flags.DEFINE_list(
    "cells",
    None,
    "Cells as size:length:batch:chip, e.g. base:128:256:v5e; chip is v5e or "
    "v6e, or under jax a host of several chips, e.g. v5e_2x2. The suffix "
    ":rematerialize recomputes blocks. Default: the table's.",
)
_COMPILE = flags.DEFINE_bool(
    "compile", True, "Whether to compile missing cells."
)

# The batches are powers of two that should fill the chip, and one of the
# largest size that these suggest. With rematerialized blocks they are several
# times as large, and leave room.
_TABLE = (
    "base:128:256:v5e",
    "base:128:320:v5e",
    "base:512:32:v5e",
    "large:128:64:v5e",
    "base:128:256:v5e_2x2",
    "base:128:512:v6e",
    "large:512:8:v5e",
    "base:512:64:v6e",
    "base:128:1024:v5e:rematerialize",
    "base:512:128:v5e:rematerialize",
)
_REMATERIALIZE = "rematerialize"
_FOLDER = pathlib.Path(__file__).resolve().parent
_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Cell:
    """One program: a model, the shape of a batch, and the target chip."""

    size: str
    length: int
    batch_size: int
    chip: str
    rematerialize: bool = False

    @classmethod
    def parse(cls, text):
        parts = text.split(":")
        if (
            len(parts) < 4
            or not (parts[1] + parts[2]).isdecimal()
            or parts[4:] not in ([], [_REMATERIALIZE])
        ):
            raise ValueError(
                "--cells must hold size:length:batch:chip, or that and "
                f":{_REMATERIALIZE}. Received: --cells={text}."
            )
        size, length, batch_size, chip = parts[:4]
        return cls(size, int(length), int(batch_size), chip, bool(parts[4:]))

    @property
    def is_of_jax(self):
        return "_" in self.chip

    @property
    def path(self):
        parts = [self.size, self.length, self.batch_size, self.chip]
        if self.rematerialize:
            parts.append(_REMATERIALIZE)
        name = "_".join(map(str, parts))
        return pathlib.Path(_RESULTS_DIR.value, f"{name}.json")

    @property
    def activations(self):
        return "again" if self.rematerialize else "kept"

    def compile(self):
        """Compiles the cell if it is missing; returns whether it is there."""
        if self.path.exists():
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        script = "tpu_compile_jax.py" if self.is_of_jax else "tpu_compile.py"
        partial = self.path.with_suffix(".partial")
        log = self.path.with_suffix(".log")
        print(f"Compiling {self}; log in {log}", file=sys.stderr, flush=True)
        with open(log, "w", encoding="utf-8") as stream:
            process = subprocess.run(
                [
                    sys.executable,
                    _FOLDER / script,
                    self.size,
                    str(self.length),
                    str(self.batch_size),
                    self.chip.replace("_", ":"),
                    _REMATERIALIZE if self.rematerialize else "keep",
                    partial,
                ],
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        if process.returncode:
            print(f"It failed: see {log}.", file=sys.stderr, flush=True)
            return False
        os.replace(partial, self.path)
        return True

    def read(self):
        return json.loads(self.path.read_text("utf-8"))


def chip_table(cells):
    """Returns lines of Markdown on what one chip's program takes."""
    lines = [
        "| model | length | rows | chip | activations | Gflop a row "
        "| of the matrix products | arguments | temporary | in all "
        "| of memory | rows, about |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        told = cell.read()
        start = (
            f"| {cell.size} | {cell.length} | {cell.batch_size} | {cell.chip} "
            f"| {cell.activations} "
        )
        memory = tpu_costs.MEMORY_GIB[cell.chip]
        if "too_large" in told:
            reason = told["too_large"].split(": ", 2)[-1]
            lines.append(f"{start}| {reason} |||||||")
            continue
        flops, total = told["flops"], _total_bytes(told)
        lines.append(
            f"{start}| {flops / cell.batch_size / 1e9:.1f} "
            f"| {flops / told['model_flops']:.2f} "
            f"| {told['argument_bytes'] / _GIB:.2f} GiB "
            f"| {told['temporary_bytes'] / _GIB:.2f} GiB "
            f"| {total / _GIB:.2f} GiB | {total / _GIB / memory:.0%} "
            f"| {_most_rows(cell, told)} |"
        )
    return lines


def _most_rows(cell, told):
    """Returns how many rows would fit if they took all temporary memory."""
    temporary = told["temporary_bytes"]
    room = tpu_costs.MEMORY_GIB[cell.chip] * _GIB - _total_bytes(told)
    return int(cell.batch_size * (room + temporary) / temporary)


def host_table(cells):
    """Returns lines of Markdown on each chip's program on several chips."""
    lines = [
        "| model | length | rows | chips | activations | all-reduces "
        "| arrays in them | Gflop a chip | in all, a chip |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        told = cell.read()
        lines.append(
            f"| {cell.size} | {cell.length} | {cell.batch_size} "
            f"| {told['num_chips']} {cell.chip.split('_')[0]} "
            f"| {cell.activations} "
            f"| {len(told['all_reduces'])} | {sum(told['all_reduces'])} "
            f"| {told['flops'] / 1e9:,.0f} "
            f"| {_total_bytes(told) / _GIB:.2f} GiB |"
        )
    return lines


def flops_per_example(cells):
    """Returns {size: {length: operations}} for the table of costs.

    They are the compiler's count if both lengths of a size are there. Otherwise
    they are the matrix products at all positions, and the name says so.
    """
    compiled = {}
    for cell in cells:
        told = cell.read()
        # Recomputed operations do not count as the model's.
        if "flops" in told and not cell.rematerialize:
            of_size = compiled.setdefault(cell.size, {})
            of_size.setdefault(cell.length, told["flops"] / cell.batch_size)
    found = {}
    for size in ("base", "large"):
        if set(compiled.get(size, {})) == set(tpu_costs.PAPER_STEPS):
            found[size] = compiled[size]
        else:
            found[f"{size}, matrix products"] = {
                length: health.flops_per_example(
                    BertConfig.named(size), length, num_predictions
                )
                for length, num_predictions in tpu_costs.PREDICTIONS.items()
            }
    return found


def _total_bytes(told):
    """Returns the bytes needed at once; in-place updates count once."""
    return (
        told["argument_bytes"]
        + told["temporary_bytes"]
        + told["output_bytes"]
        - told["alias_bytes"]
    )


def main(_):
    cells = [Cell.parse(text) for text in _CELLS.value or _TABLE]
    failed = False
    if _COMPILE.value:
        # If one fails, the others are still compiled.
        results = [cell.compile() for cell in cells]
        failed = not all(results)
    cells = [cell for cell in cells if cell.path.exists()]
    of_chips = [cell for cell in cells if not cell.is_of_jax]
    for lines in (
        chip_table(of_chips),
        host_table([cell for cell in cells if cell.is_of_jax]),
        tpu_costs.cost_table(flops_per_example(of_chips)),
    ):
        print("\n".join(lines), end="\n\n")
    return int(failed)


if __name__ == "__main__":
    program.run(main)
