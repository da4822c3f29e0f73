"""Options of a pre-training from flat names, as programs have them."""

import dataclasses

from bert_tf.runs.options import PretrainingOptions


def make_options(**values):
    """Returns the options with these values, whichever part has them."""
    options = _make(PretrainingOptions, values)
    assert not values, f"unknown: {sorted(values)}"
    return options


def _make(kind, values):
    return kind(
        **{
            field.name: _make(field.type, values)
            if dataclasses.is_dataclass(field.type)
            else values.pop(field.name)
            for field in dataclasses.fields(kind)
            if dataclasses.is_dataclass(field.type) or field.name in values
        }
    )
