"""The parts of models: the encoder, its pooler, and heads."""

ENCODER = "encoder"
POOLER = "pooler"
# What all heads of some families begin with; elsewhere a part of the
# masked-LM head.
TRANSFORM = "transform"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
TOKEN_CLASSIFIER = "token_classifier"
SPAN = "span"
MULTIPLE_CHOICE = "multiple_choice"
DISCRIMINATOR = "discriminator"

# Their names in logs.
NAMES = {
    ENCODER: "encoder",
    POOLER: "pooler",
    TRANSFORM: "first layer of heads",
    MASKED_LM: "masked-LM head",
    NEXT_SENTENCE: "next-sentence head",
    CLASSIFIER: "classifier head",
    TOKEN_CLASSIFIER: "token classifier head",
    SPAN: "span head",
    MULTIPLE_CHOICE: "multiple-choice head",
    DISCRIMINATOR: "discriminator head",
}

# Heads whose config.json names the classes.
CLASSIFIERS = (CLASSIFIER, TOKEN_CLASSIFIER)
# Hugging Face and Google store these heads under one name. The class of the
# model tells which one it is.
OF_ONE_NAME = (CLASSIFIER, TOKEN_CLASSIFIER, MULTIPLE_CHOICE)
