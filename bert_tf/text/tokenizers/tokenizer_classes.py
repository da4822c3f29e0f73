"""Names of tokenizers' classes in tokenizer_config.json and config.json.

What transformers 5.23 makes of a folder depends on the class. Most classes take
the vocabulary of tokenizer.json, and build the rest anew from the settings of
tokenizer_config.json. The general ones, and classes that transformers does not
have, obey tokenizer.json.
"""

from typing import Any

from bert_tf import files
from bert_tf import messages
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import SpecialTokens

WORDPIECE = "BertTokenizer"
MPNET = "MPNetTokenizer"
BPE = "RobertaTokenizer"

# {a class: the class of the same kind that bert_tf writes}. Names end in "Fast"
# or do not.
CLASSES: dict[str, str] = {
    **dict.fromkeys(
        (
            WORDPIECE,
            "ConvBertTokenizer",
            "DistilBertTokenizer",
            "DPRContextEncoderTokenizer",
            "DPRQuestionEncoderTokenizer",
            "ElectraTokenizer",
            "LayoutLMTokenizer",
            "LxmertTokenizer",
            "MobileBertTokenizer",
            "RealmTokenizer",
            "RetriBertTokenizer",
            "SqueezeBertTokenizer",
        ),
        WORDPIECE,
    ),
    **dict.fromkeys((BPE, "LongformerTokenizer"), BPE),
    **{
        name: name
        for name in (
            "AlbertTokenizer",
            "CamembertTokenizer",
            MPNET,
            "XLMRobertaTokenizer",
        )
    },
}

# The general classes: tokenizer.json is all that they know.
GENERAL = ("PreTrainedTokenizer", "PythonBackend", "TokenizersBackend")

# Classes that obey tokenizer.json though they are of a kind.
_OBEDIENT = ("ConvBertTokenizer", "RealmTokenizer", "RetriBertTokenizer")

# Classes that give a model no segments by default.
_WITHOUT_SEGMENTS = (
    "DistilBertTokenizer",
    MPNET,
    "RealmTokenizer",
    "RetriBertTokenizer",
)

# transformers' other classes, without "Tokenizer": their code splits texts in
# other ways.
_FOREIGN = """
    Barthez Bartpho BertGeneration BertJapanese Bertweet BigBird BioGpt
    Blenderbot BlenderbotSmall Bloom ByT5 CLIP CTRL Canine Clvp CodeGen
    CodeLlama Cohere Cpm CpmAnt DPRReader Deberta DebertaV2 Dia Esm Esmc
    FNet FSMT FastSpeech2Conformer Flaubert Funnel GPT2 GPTNeoX
    GPTNeoXJapanese GPTSw3 Gemma Herbert Lasr LayoutLMv2 LayoutLMv3
    LayoutXLM Llama Luke M2M100 MBart MBart50 MLuke MT5 Marian
    MarkupLM Mgpstr MyT5 Nllb Nougat OpenAIGPT PLBart Parakeet Pegasus
    Perceiver Phobert Pop2Piano ProphetNet Qwen2 Qwen3_5 Reformer RemBert
    RoCBert RoFormer SeamlessM4T Siglip Siglip2 Speech2Text SpeechT5
    Splinter T5 Tapas Tipsv2 Udop VideoPrism Vits Wav2Vec2CTC
    Wav2Vec2PhonemeCTC Whisper XGLM XLM XLNet
"""
FOREIGN = frozenset(_FOREIGN.split())


def of_wordpiece(special: SpecialTokens) -> str:
    """Returns the class of a WordPiece tokenizer with these special tokens."""
    return MPNET if special.cls == ROBERTA.cls else WORDPIECE


def base(name: str) -> str:
    """Returns a class's name without "Fast" at its end."""
    return name.removesuffix("Fast")


def is_foreign(name: str) -> bool:
    """Returns whether transformers has the class and bert_tf no such kind."""
    return base(name).removesuffix("Tokenizer") in FOREIGN


def is_rebuilt(settings: dict[str, Any], kind: str) -> bool:
    """Returns whether transformers takes only the vocabulary of tokenizer.json.

    Args:
        settings: The contents of tokenizer_config.json. Without a
            `tokenizer_class`, the model's family tells the class.
        kind: What the folder's tokenizer is: a class that bert_tf writes.
    """
    name = settings.get("tokenizer_class")
    if name is None:
        return True
    return CLASSES.get(base(name)) == kind and base(name) not in _OBEDIENT


def has_defaults(folder: str, settings: dict[str, Any]) -> bool:
    """Returns whether the class is known, and so its settings by default.

    Args:
        folder: The folder. transformers needs its config.json where the
            settings name no class.
        settings: The contents of its tokenizer_config.json.
    """
    return "tokenizer_class" in settings or files.exists(
        f"{folder}/config.json"
    )


def check_same(
    settings: dict[str, Any], name: str, received: Any, expected: Any
) -> None:
    """Checks that a setting, which transformers obeys, is as in tokenizer.json.

    Args:
        settings: The contents of tokenizer_config.json.
        name: The setting.
        received: Its value, or what transformers takes without one.
        expected: The value of tokenizer.json.

    Raises:
        ValueError: If they differ.
    """
    if received != expected:
        by_default = "" if name in settings else ", by default"
        raise ValueError(
            f"`{name}` must be {expected}, as in tokenizer.json. "
            f"Received: {name}={received}{by_default}."
        )


def gives_segments(settings: dict[str, Any]) -> bool:
    """Returns whether transformers gives the model segments, 1 for B.

    Args:
        settings: The contents of tokenizer_config.json, of a WordPiece
            tokenizer.

    Raises:
        ValueError: If `model_input_names` is no list, or has no masks.
    """
    names = settings.get("model_input_names")
    if names is None:
        name = base(settings.get("tokenizer_class") or WORDPIECE)
        return name in CLASSES and name not in _WITHOUT_SEGMENTS
    if not isinstance(names, list) or "attention_mask" not in names:
        raise ValueError(
            "`model_input_names` must be a list with input_ids and "
            "attention_mask: padding is masked. Received: "
            f"model_input_names={messages.shortened(names)}."
        )
    return "token_type_ids" in names
