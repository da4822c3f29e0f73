"""All objectives, by their names in settings and manifests."""

from bert_tf.pretraining.objectives import full_sentences
from bert_tf.pretraining.objectives import next_sentence
from bert_tf.pretraining.objectives import sentence_order

OBJECTIVES = {
    objective.name: objective
    for objective in (
        next_sentence.OBJECTIVE,
        sentence_order.OBJECTIVE,
        full_sentences.OBJECTIVE,
    )
}
