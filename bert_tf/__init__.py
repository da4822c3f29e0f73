"""BERT from raw text to a served SavedModel, in TensorFlow and Keras 3.

The names in `__all__` are public. Each is imported, with everything it needs,
when it is first looked up (PEP 562). So `import bert_tf` loads neither
TensorFlow nor Keras, and the models do not load TensorFlow if Keras has another
backend. `keras.saving.load_model` knows the classes defined here, whether Keras
or bert_tf is imported first.
"""

from typing import TYPE_CHECKING

from bert_tf import keras_files
from bert_tf import lazy

if TYPE_CHECKING:
    from bert_tf import tuning
    from bert_tf.config import BertConfig
    from bert_tf.models.classifier import BertClassifier
    from bert_tf.models.discriminator import BertDiscriminator
    from bert_tf.models.encoder import BertEncoder
    from bert_tf.models.multiple_choice import BertMultipleChoice
    from bert_tf.models.pretrainer import BertPretrainer
    from bert_tf.models.reranker import BertReranker
    from bert_tf.models.sentence_encoder import BertSentenceEncoder
    from bert_tf.models.span_predictor import BertSpanPredictor
    from bert_tf.models.token_classifier import BertTokenClassifier
    from bert_tf.optimizers.bert import BertOptimizer
    from bert_tf.optimizers.schedule import WarmupDecay
    from bert_tf.saving import load
    from bert_tf.saving import save
    from bert_tf.serving.exporter import export
    from bert_tf.serving.options import ExportOptions
    from bert_tf.serving.predictors import predictor
    from bert_tf.tasks.classification.task import ClassificationTask
    from bert_tf.tasks.multi_label import MultiLabelTask
    from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
    from bert_tf.tasks.question_answering.task import SquadTask
    from bert_tf.tasks.reranking.task import RerankingTask
    from bert_tf.tasks.retrieval.task import RetrievalTask
    from bert_tf.tasks.tagging.task import TaggingTask
    from bert_tf.text.preprocessor import Preprocessor

__version__ = "0.2.0"

# Written out for type checkers and editors.
__all__ = [
    "BertClassifier",
    "BertConfig",
    "BertDiscriminator",
    "BertEncoder",
    "BertMultipleChoice",
    "BertOptimizer",
    "BertPretrainer",
    "BertReranker",
    "BertSentenceEncoder",
    "BertSpanPredictor",
    "BertTokenClassifier",
    "ClassificationTask",
    "ExportOptions",
    "MultiLabelTask",
    "MultipleChoiceTask",
    "Preprocessor",
    "RerankingTask",
    "RetrievalTask",
    "SquadTask",
    "TaggingTask",
    "WarmupDecay",
    "export",
    "load",
    "predictor",
    "save",
    "tuning",
]

# The module that defines each name, or that is meant by it.
_MODULES = {
    "BertClassifier": "bert_tf.models.classifier",
    "BertConfig": "bert_tf.config",
    "BertDiscriminator": "bert_tf.models.discriminator",
    "BertEncoder": "bert_tf.models.encoder",
    "BertMultipleChoice": "bert_tf.models.multiple_choice",
    "BertOptimizer": "bert_tf.optimizers.bert",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertReranker": "bert_tf.models.reranker",
    "BertSentenceEncoder": "bert_tf.models.sentence_encoder",
    "BertSpanPredictor": "bert_tf.models.span_predictor",
    "BertTokenClassifier": "bert_tf.models.token_classifier",
    "ClassificationTask": "bert_tf.tasks.classification.task",
    "ExportOptions": "bert_tf.serving.options",
    "MultiLabelTask": "bert_tf.tasks.multi_label",
    "MultipleChoiceTask": "bert_tf.tasks.multiple_choice.task",
    "Preprocessor": "bert_tf.text.preprocessor",
    "RerankingTask": "bert_tf.tasks.reranking.task",
    "RetrievalTask": "bert_tf.tasks.retrieval.task",
    "SquadTask": "bert_tf.tasks.question_answering.task",
    "TaggingTask": "bert_tf.tasks.tagging.task",
    "WarmupDecay": "bert_tf.optimizers.schedule",
    "export": "bert_tf.serving.exporter",
    "load": "bert_tf.saving",
    "predictor": "bert_tf.serving.predictors",
    "save": "bert_tf.saving",
    "tuning": "bert_tf.tuning",
}


# With such a function, type checkers would accept every name.
if not TYPE_CHECKING:
    __getattr__ = lazy.attach(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


keras_files.register_with_keras()
