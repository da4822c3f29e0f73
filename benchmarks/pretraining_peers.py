"""The peers' processes of benchmarks/pretraining.py; see pretraining_worker.py.

Each runs in an environment with its library: `keras_hub` (only the masked LM,
as it has no next-sentence head), `model_garden` (tf-models-official) or
`transformers` (PyTorch); `transformers_compiled` is its step under
`torch.compile`. Each makes full rows of random tokens once, then trains on
them: dropout 0.1, AdamW with clipping at norm 1, and vocabulary logits only at
the predicted positions. transformers' own heads would compute them at all
positions.
"""

import functools
import os

import numpy as np
import pretraining_worker


def random_batch(job):
    """Returns one batch of full rows: {name: int32 array}."""
    random = np.random.default_rng(1)
    batch_size, length = job["batch_size"], job["length"]
    num_words = job["config"]["vocab_size"]
    positions = [
        np.sort(random.permutation(length)[: job["num_predictions"]])
        for _ in range(batch_size)
    ]
    arrays = {
        "ids": random.integers(num_words, size=(batch_size, length)),
        "mask": np.ones((batch_size, length)),
        "segments": random.integers(2, size=(batch_size, length)),
        "positions": np.stack(positions),
        "labels": random.integers(
            num_words, size=(batch_size, job["num_predictions"])
        ),
        "is_next": random.integers(2, size=(batch_size,)),
    }
    return {name: array.astype("int32") for name, array in arrays.items()}


def keras_hub(job):
    import keras
    import keras_hub
    import tensorflow as tf

    if job["precision"] == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")
    config = job["config"]
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
    )
    inputs = backbone.input | {
        "mask_positions": keras.Input(
            (None,), dtype="int32", name="mask_positions"
        )
    }
    scores = keras_hub.layers.MaskedLMHead(
        token_embedding=backbone.token_embedding,
        intermediate_activation=lambda x: keras.ops.gelu(x, approximate=True),
        dtype=keras.config.dtype_policy(),
    )(
        backbone(backbone.input)["sequence_output"],
        mask_positions=inputs["mask_positions"],
    )
    scores = keras.layers.Activation("linear", dtype="float32")(scores)
    model = keras.Model(inputs, scores)
    model.compile(
        optimizer=keras.optimizers.AdamW(
            1e-4, weight_decay=0.01, global_clipnorm=1.0
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Keras's own choice, XLA, is slower on CPUs.
        jit_compile=False,
    )
    batch = random_batch(job)
    rows = (
        {
            "token_ids": batch["ids"],
            "segment_ids": batch["segments"],
            "padding_mask": batch["mask"],
            "mask_positions": batch["positions"],
        },
        batch["labels"],
    )
    batches = tf.data.Dataset.from_tensors(rows).repeat().prefetch(2)
    return lambda count: _ignore(
        model.fit(batches, steps_per_epoch=count, verbose=0)
    )


def model_garden(job):
    import tensorflow as tf
    import tf_keras
    from official.nlp import optimization
    from official.nlp.modeling import layers
    from official.nlp.modeling import models
    from official.nlp.modeling import networks

    if job["precision"] == "bfloat16":
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    config = job["config"]
    encoder = networks.BertEncoderV2(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_attention_heads=config["num_attention_heads"],
        inner_dim=config["intermediate_size"],
        max_sequence_length=config["max_position_embeddings"],
        type_vocab_size=2,
    )
    model = models.BertPretrainerV2(
        encoder_network=encoder,
        mlm_activation=lambda x: tf_keras.activations.gelu(x, approximate=True),
        classification_heads=[
            layers.ClassificationHead(
                config["hidden_size"], 2, name="next_sentence"
            )
        ],
    )
    optimizer = optimization.AdamWeightDecay(
        1e-4,
        weight_decay_rate=0.01,
        gradient_clip_norm=1.0,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )
    batch = random_batch(job)
    inputs = {
        "input_word_ids": tf.constant(batch["ids"]),
        "input_mask": tf.constant(batch["mask"]),
        "input_type_ids": tf.constant(batch["segments"]),
        "masked_lm_positions": tf.constant(batch["positions"]),
    }
    model(inputs)

    def loss_of(labels, logits):
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels, tf.cast(logits, tf.float32)
            )
        )

    @tf.function
    def run(count):
        for _ in tf.range(count):
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                loss = loss_of(batch["labels"], outputs["mlm_logits"])
                loss += loss_of(batch["is_next"], outputs["next_sentence"])
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables))

    return lambda count: run(tf.constant(count))


def transformers(job):
    import torch
    import transformers

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    device = "cuda" if job["device"] == "gpu" else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = job["tf32"]
    torch.backends.cudnn.allow_tf32 = job["tf32"]
    config = transformers.BertConfig(
        **{
            name: job["config"][name]
            for name in (
                "vocab_size",
                "hidden_size",
                "num_hidden_layers",
                "num_attention_heads",
                "intermediate_size",
                "max_position_embeddings",
                "hidden_act",
            )
        }
    )
    model = transformers.BertForPreTraining(config).to(device)
    model.train()
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        is_other = "LayerNorm" in name or "bias" in name
        (others if is_other else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ],
        1e-4,
        fused=True,
    )
    batch = {
        name: torch.tensor(array, device=device).long()
        for name, array in random_batch(job).items()
    }
    rows = torch.arange(job["batch_size"], device=device)[:, None]

    def compute_loss():
        with torch.autocast(
            device, torch.bfloat16, enabled=job["precision"] == "bfloat16"
        ):
            outputs = model.bert(
                input_ids=batch["ids"],
                attention_mask=batch["mask"],
                token_type_ids=batch["segments"],
            )
            words, is_next = model.cls(
                outputs.last_hidden_state[rows, batch["positions"]],
                outputs.pooler_output,
            )
        return torch.nn.functional.cross_entropy(
            words.float().flatten(0, 1), batch["labels"].flatten()
        ) + torch.nn.functional.cross_entropy(is_next.float(), batch["is_next"])

    if job["library"] == "transformers_compiled":
        compute_loss = torch.compile(compute_loss)

    def step():
        loss = compute_loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return lambda count: _ignore([step() for _ in range(count)])


def device_peak(job):
    """Returns the peak GPU memory of PyTorch's tensors, in bytes."""
    if job["device"] != "gpu":
        return None
    import torch

    return torch.cuda.max_memory_allocated()


def _ignore(_):
    """Returns None, as the rows of peers have no padding."""


if __name__ == "__main__":
    _JOB = pretraining_worker.read_job()
    _MAKE = {
        "keras_hub": keras_hub,
        "model_garden": model_garden,
        "transformers": transformers,
        "transformers_compiled": transformers,
    }[_JOB["library"]]
    pretraining_worker.serve(
        _MAKE(_JOB), _JOB["batch_size"], functools.partial(device_peak, _JOB)
    )
