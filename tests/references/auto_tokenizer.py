"""What transformers' AutoTokenizer makes of texts.

With an environment that has transformers, a program:

    python auto_tokenizer.py FOLDER TEXTS

TEXTS is a JSON file of texts, or of lists of words. Prints JSON: of each the
ids, and of texts the offsets.
"""

import json
import pathlib
import sys


def main():
    import transformers

    folder, path = sys.argv[1:]
    texts = json.loads(pathlib.Path(path).read_text("utf-8"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    are_words = isinstance(texts[0], list)
    found = tokenizer(
        texts,
        is_split_into_words=are_words,
        return_offsets_mapping=not are_words,
    )
    print(
        json.dumps(
            {
                "class": type(tokenizer).__name__,
                "max_length": tokenizer.model_max_length,
                "ids": found["input_ids"],
                "offsets": found.get("offset_mapping"),
            }
        )
    )


if __name__ == "__main__":
    main()
