r"""Tunes BERT to tag words: named entities, as in CoNLL-2003.

    python -m bert_tf.run_tagger --data_dir=conll2003 \
        --init_checkpoint=cased_L-12_H-768_A-12 --do_lower_case=false \
        --output_dir=ner_output --do_train --do_eval --do_predict

reads train, dev and test files with one word and its columns a line (see
`tasks.tagging.files`) and writes into --output_dir the tuned model as a model
folder (config.json, model.safetensors, vocab.txt, tokenizer_config.json,
task.json), the state of the training in train/, precision, recall and F1 of
the development set's entities, as seqeval counts them, in eval_results.txt, a
report of them in report.md, and the test set with a column of predicted tags in
test_predictions.txt. It also reads prepared sets of TensorFlow Datasets:

    python -m bert_tf.run_tagger --tfds_name=conll2003 ...

Rerun the same command to resume after a stop, or after the end with more
--num_train_epochs.
"""

from absl import flags

from bert_tf import fine_tuning_flags
from bert_tf import program
from bert_tf import training_flags

fine_tuning_flags.define_files()
_DATA_DIR = flags.DEFINE_string(
    "data_dir",
    None,
    "Folder with files named train, dev (or valid, testa) and test (or "
    "testb), each with .conll, .txt, .tsv or nothing after it; or CoNLL-2003's "
    "eng.train, eng.testa and eng.testb.",
)
_TFDS_NAME = flags.DEFINE_string(
    "tfds_name",
    None,
    "A prepared set of TensorFlow Datasets instead of files, e.g. conll2003. "
    "It is looked for in TFDS_DATA_DIR of the environment, or in "
    "~/tensorflow_datasets.",
)
_TOKEN_COLUMN = flags.DEFINE_string(
    "token_column",
    None,
    "The column of words: its number from 0, or its name in the first line of "
    "every file, including the test set's. Default: 0; with --tfds_name "
    "tokens.",
)
_LABEL_COLUMN = flags.DEFINE_string(
    "label_column",
    None,
    "The column of tags: its number from 0, or its name in the first line. "
    "Default: -1, the last one; with --tfds_name the one named ner, ner_tags "
    "or tags.",
)


def main(argv):
    del argv
    config = fine_tuning_flags.make_config()
    builder = fine_tuning_flags.open_data_set(
        _TFDS_NAME.value,
        data_dir=_DATA_DIR.value,
        train_file=flags.FLAGS.train_file,
        eval_file=flags.FLAGS.eval_file,
        predict_file=flags.FLAGS.predict_file,
    )

    from bert_tf.tasks import source
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    folder = tuning_run.tuned_folder(config)
    examples = {
        split: _read(split, path, builder)
        for split, path, is_wanted in (
            (source.TRAIN, flags.FLAGS.train_file, config.do_train),
            (source.DEV, flags.FLAGS.eval_file, config.do_eval),
            (source.TEST, flags.FLAGS.predict_file, config.do_predict),
        )
        if is_wanted
    }
    task = _find_task(folder, examples)
    fine_tuning_flags.execute(
        config, task, examples, strategy, dataset=_TFDS_NAME.value
    )


def _read(split, path, builder):
    """Returns the `TaggingExamples` of a split; the test set has no tags."""
    from bert_tf.tasks import source
    from bert_tf.tasks.tagging import files as tagging_files

    has_tags = split != source.TEST
    if builder is not None:
        from bert_tf.tasks.tagging import tfds as tagging_tfds

        return tagging_tfds.read(
            builder, split, _TOKEN_COLUMN.value, _LABEL_COLUMN.value, has_tags
        )
    if path is None:
        program.require(data_dir=_DATA_DIR.value)
        path = tagging_files.find_file(_DATA_DIR.value, split)
    return tagging_files.read_columns(
        path,
        tagging_files.parse_column(_TOKEN_COLUMN.value, 0),
        tagging_files.parse_column(_LABEL_COLUMN.value, -1),
        has_tags,
    )


def _find_task(folder, examples):
    """Returns the task: a tuned folder's, or one made from the training set."""
    from bert_tf.tasks import source
    from bert_tf.tasks.tagging import task as tagging
    from bert_tf.tasks.tagging.task import TaggingTask

    if folder is not None:
        task = tagging.tuned_task(folder)
    else:
        task = TaggingTask().with_tags_of(examples[source.TRAIN])
    for split in examples.values():
        if split.tags is not None:
            split.warn_of_breaches(task.scheme)
    return task


if __name__ == "__main__":
    program.run(main)
