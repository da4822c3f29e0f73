"""What models consist of: the encoder, its pooler, and heads."""

ENCODER = "encoder"
POOLER = "pooler"
MASKED_LM = "masked_lm"
NEXT_SENTENCE = "next_sentence"
CLASSIFIER = "classifier"
TOKEN_CLASSIFIER = "token_classifier"
SPAN = "span"
MULTIPLE_CHOICE = "multiple_choice"
DISCRIMINATOR = "discriminator"

# What logs call them.
NAMES = {
    ENCODER: "encoder",
    POOLER: "pooler",
    MASKED_LM: "masked-LM head",
    NEXT_SENTENCE: "next-sentence head",
    CLASSIFIER: "classifier head",
    TOKEN_CLASSIFIER: "token classifier head",
    SPAN: "span head",
    MULTIPLE_CHOICE: "multiple-choice head",
    DISCRIMINATOR: "discriminator head",
}

# Heads whose classes have names in their config.json.
CLASSIFIERS = (CLASSIFIER, TOKEN_CLASSIFIER)
# Hugging Face and Google call these heads of several models by one name: the
# class of the model tells which one it is.
OF_ONE_NAME = (CLASSIFIER, TOKEN_CLASSIFIER, MULTIPLE_CHOICE)
