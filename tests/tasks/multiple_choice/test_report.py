import numpy as np

from bert_tf.tasks.multiple_choice import report as multiple_choice_report
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask

TASK = MultipleChoiceTask(num_choices=3)
EXAMPLES = ChoiceExamples(
    contexts=("one", "two", "three", "four"),
    choices=(
        ("a", "b", "c"),
        ("d", "e*", "f"),
        ("g", "h", "i"),
        ("j", "k", "l"),
    ),
    labels=np.int32([0, 1, 1, 2]),
)
# Probabilities of which each row's logits are.
PROBABILITIES = np.float32(
    [[0.5, 0.25, 0.25], [0.5, 0.2, 0.3], [0.8, 0.1, 0.1], [0.2, 0.3, 0.5]]
)


def test_places_of_the_right_choice_and_worst_errors():
    sections = dict(
        multiple_choice_report.sections(TASK, EXAMPLES, np.log(PROBABILITIES))
    )
    assert sections["Choices"].splitlines()[2:] == [
        "| 0 | 1 | 3 | 1 |",
        "| 1 | 2 | 0 | 0 |",
        "| 2 | 1 | 1 | 1 |",
    ]
    assert sections["Confusion"].splitlines()[2:] == [
        "| is 0 | 1 | 0 | 0 |",
        "| is 1 | 2 | 0 | 0 |",
        "| is 2 | 0 | 0 | 1 |",
    ]
    # The losses are -log 0.1 and -log 0.2.
    assert sections["Worst errors"].splitlines()[2:] == [
        "| 3 | three | 0.800 g<br>**0.100 h**<br>0.100 i | 2.303 |",
        r"| 2 | two | 0.500 d<br>**0.200 e\***<br>0.300 f | 1.609 |",
    ]


def test_no_errors():
    logits = np.eye(3, dtype=np.float32)[EXAMPLES.labels]
    sections = dict(multiple_choice_report.sections(TASK, EXAMPLES, logits))
    assert sections["Worst errors"] == "None: every answer is right."
