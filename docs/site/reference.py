"""Pages of reference, from the code: flags of programs, public names."""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

import bert_tf
from bert_tf.__main__ import COMMANDS

_FLAGS_OF = pathlib.Path(__file__).with_name("flags_of.py")


def program_pages():
    """Returns {name on the site: text}: a page for each command."""
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        told = threads.map(_flags_of, COMMANDS.values())
        return {
            f"reference/programs/{command}.md": _program_page(
                command, module, answer
            )
            for (command, module), answer in zip(COMMANDS.items(), told)
        }


def python_pages():
    """Returns {name on the site: text}: a page for each public name."""
    names = ["tuning.run" if n == "tuning" else n for n in bert_tf.__all__]
    return {
        f"reference/python/{name}.md": (
            f"---\ntitle: {name}\n---\n\n::: bert_tf.{name}\n"
        )
        for name in names
    }


def _flags_of(module):
    done = subprocess.run(
        [sys.executable, _FLAGS_OF, module],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _program_page(command, module, answer):
    summary, _, rest = answer["doc"].partition("\n")
    parts = [
        f"---\ntitle: {command}\n---",
        f"# bert_tf {command}",
        _escaped(summary),
        *_paragraphs(rest),
        f"The same program is `python -m {module}`.",
    ]
    for origin, flags in answer["groups"]:
        if len(answer["groups"]) > 1:
            parts.append(f"## {_escaped(origin)}")
        lines = ["| Flag | Default | What it does |", "|---|---|---|"]
        for flag in flags:
            cells = (_named(flag), _default(flag), _help(flag))
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _named(flag):
    if flag["type"] == "bool":
        return f"`--[no]{flag['name']}`"
    return f"`--{flag['name']}`"


def _default(flag):
    default = flag["default"]
    if default is None:
        return "none"
    if isinstance(default, list):
        default = ",".join(map(str, default))
    if isinstance(default, bool):
        default = str(default).lower()
    return f"`{default}`" if default != "" else "empty"


def _help(flag):
    text = _escaped(" ".join(flag["help"].split())).replace("|", r"\|")
    kind = flag["type"]
    if flag["choices"]:
        one = ", ".join(f"`{choice or 'empty'}`" for choice in flag["choices"])
        return f"{text} One of {one}."
    if kind.startswith("multi"):
        return f"{text} May be given several times."
    if kind == "bool":
        return text
    return f"{text} *({kind})*"


def _paragraphs(text):
    """Yields the blocks of a docstring as Markdown: commands, and prose."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            code = "\n".join(line[4:] for line in lines)
            yield f"```sh\n{code}\n```"
        else:
            yield _escaped(block)


def _escaped(text):
    """Returns text of which Markdown makes only code, between backticks."""
    parts = re.split(r"(`[^`\n]+`)", text)
    parts[::2] = [
        re.sub(r"([\\`*_<>\[\]])", r"\\\1", each) for each in parts[::2]
    ]
    return "".join(parts)
