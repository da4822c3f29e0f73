"""The files of a fine-tuning, as options."""

import dataclasses

from bert_tf import described


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFiles:
    """The files of a task's examples; its program says which it reads."""

    train_file: str | None = described.option(
        None, "File to train on; the text above says which files are read."
    )
    eval_file: str | None = described.option(
        None, "File for --do_eval, of a form of --train_file."
    )
    predict_file: str | None = described.option(
        None, "File for --do_predict; it needs no labels."
    )
