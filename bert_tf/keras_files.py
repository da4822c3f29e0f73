"""The classes of this library that Keras files may hold.

Keras finds a class in a file by its registered name, and a class is registered
when its module is imported. `import bert_tf` imports neither these modules nor
Keras. So the classes are registered here, only by name, when Keras is imported:
Keras has no place for names before that, and does not import the module that a
file names.
"""

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

CLASSES = (
    "bert_tf.layers.attention.SelfAttention",
    "bert_tf.layers.basic.Dense",
    "bert_tf.layers.basic.Dropout",
    "bert_tf.layers.discriminator_head.DiscriminatorHead",
    "bert_tf.layers.embeddings.BertEmbeddings",
    "bert_tf.layers.encoder_block.EncoderBlock",
    "bert_tf.layers.gated.GatedFeedForward",
    "bert_tf.layers.heads.ClassificationHead",
    "bert_tf.layers.heads.HiddenLayer",
    "bert_tf.layers.heads.MaskedLMHead",
    "bert_tf.layers.heads.Pooler",
    "bert_tf.layers.heads.Transform",
    "bert_tf.layers.pre_norm_block.PreNormBlock",
    "bert_tf.layers.relative_block.RelativeBlock",
    "bert_tf.layers.rotary_attention.RotaryAttention",
    "bert_tf.layers.span_boundary_head.SpanBoundaryHead",
    "bert_tf.models.classifier.BertClassifier",
    "bert_tf.models.discriminator.BertDiscriminator",
    "bert_tf.models.encoder.BertEncoder",
    "bert_tf.models.multiple_choice.BertMultipleChoice",
    "bert_tf.models.pretrainer.BertPretrainer",
    "bert_tf.models.replaced_tokens.ReplacedTokensPretrainer",
    "bert_tf.models.reranker.BertReranker",
    "bert_tf.models.sentence_encoder.BertSentenceEncoder",
    "bert_tf.models.span_boundaries.SpanBoundaryPretrainer",
    "bert_tf.models.span_predictor.BertSpanPredictor",
    "bert_tf.models.token_classifier.BertTokenClassifier",
    "bert_tf.optimizers.bert.BertOptimizer",
    "bert_tf.optimizers.lamb.LambOptimizer",
    "bert_tf.optimizers.loss_scale.LossScaleOptimizer",
    "bert_tf.optimizers.schedule.WarmupDecay",
    "bert_tf.optimizers.stable_adamw.StableAdamW",
    "bert_tf.tasks.classification.task.ClassificationTask",
    "bert_tf.tasks.multi_label.MultiLabelTask",
    "bert_tf.tasks.multiple_choice.task.MultipleChoiceTask",
    "bert_tf.tasks.question_answering.task.SquadTask",
    "bert_tf.tasks.reranking.task.RerankingTask",
    "bert_tf.tasks.retrieval.task.RetrievalTask",
    "bert_tf.tasks.tagging.task.TaggingTask",
    "bert_tf.tasks.task.TaskLoss",
    "bert_tf.text.preprocessor_layer.PreprocessorLayer",
)
# Names under which files know a class, if they differ from its own.
_NAMES = {"WarmupDecay": "WarmupLinearDecay"}


class _NotImported:
    """Stands for a class until it is loaded from a file."""

    def __init__(self, module, name):
        self._module = module
        # Keras reads this when it looks up a class's registered name.
        self.__name__ = name

    def from_config(self, config: dict[str, Any]) -> Any:
        # The import registers the class, which replaces this object.
        module = importlib.import_module(self._module)
        return getattr(module, self.__name__).from_config(config)


def register(keras: ModuleType) -> None:
    """Lets Keras find the classes that are not imported yet."""
    objects = keras.saving.get_custom_objects()
    for path in CLASSES:
        module, _, name = path.rpartition(".")
        objects.setdefault(
            f"bert_tf>{_NAMES.get(name, name)}", _NotImported(module, name)
        )


class _KerasFinder(importlib.machinery.PathFinder):
    """Finds Keras, and registers the classes at the end of its import."""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras":
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _KerasLoader(fullname, spec.origin)
        return spec


class _KerasLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        register(module)


def register_with_keras() -> None:
    """Registers the classes now, or as soon as Keras is imported."""
    if "keras" in sys.modules:
        register(sys.modules["keras"])
    else:
        sys.meta_path.insert(0, _KerasFinder)
