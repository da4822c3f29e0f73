"""The commands and snippets of README.md, docs/ and other pages.

A ```bash fence holds commands, a ```python fence a snippet; both run in their
order on the page, in one folder, all snippets of a page in one process. A
command that needs a TPU, a cluster, a server or the network, or makes an
environment, is not run, and none of a ```sh fence; tests/test_docs_flags.py
checks them. Nor is a snippet that imports a library which no extra installs. A
```text fence is no command.
"""

import dataclasses
import functools
import json
import pathlib
import re
import shlex
import subprocess
import sys

from bert_tf.__main__ import COMMANDS
from support.paths import ROOT

# In the order of the site: each works in the folder that those before it left.
TUTORIALS = [
    ROOT / "docs" / name
    for name in re.findall(
        r": (tutorials/\w+\.md)$",
        (ROOT / "mkdocs.yml").read_text("utf-8"),
        re.MULTILINE,
    )
]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *TUTORIALS,
    # References, all of whose fences are ```sh.
    ROOT / "export" / "serving" / "README.md",
    ROOT / "CONTRIBUTING.md",
]
_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
# A command with one of these is not run.
_ELSEWHERE = re.compile(
    r"--use_tpu|--beam_runner|--strategy=multi_worker|gs://|grpc://|hf:|&$"
)
_NOT_RUN = {
    *("cd", "curl", "docker", "gcloud", "git", "kubectl", "make", "pip"),
    *("ssh", "tensorboard"),
}

# A snippet that imports one of these is not run: no extra installs them.
_NOT_INSTALLED = re.compile(r"^import faiss$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """A command or a snippet.

    Attributes:
        page: The file's path in the repository.
        line: The number of its first line there.
        kind: "bash", "sh" or "python".
        text: As it is written, without the fence's indent.
    """

    page: str
    line: int
    kind: str
    text: str

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def commands(self):
        """The simple commands of it, as lists of words.

        A line of a shell may have several. Variables before a command are not
        in it, nor is where its output goes.
        """
        found, words = [], []
        text = self.text.replace("\\\n", " ")
        tokens = shlex.shlex(text, posix=True, punctuation_chars=True)
        tokens.whitespace_split = True
        for token in [*tokens, ";"]:
            if re.fullmatch(r"[();<>|&]+", token) or token in ("do", "then"):
                if words:
                    found.append(words)
                words = []
            elif words or not re.match(r"[A-Z_]+=", token):
                words.append(token)
        return found

    @property
    def programs(self):
        """What of ours it runs: [(program, arguments)]; see `program_of`."""
        if self.kind == "python":
            return []
        found = [program_of(words) for words in self.commands]
        return [each for each in found if each[0] is not None]

    @property
    def is_for_a_shell(self):
        """Whether a command is more than a program and its arguments."""
        is_more = re.search(r"[$`>]|^[A-Z_]+=", self.text)
        return is_more is not None or len(self.commands) > 1

    @property
    def is_run(self):
        """Whether it can be run on one machine, without the network."""
        if self.kind == "python":
            return not _NOT_INSTALLED.search(self.text)
        return (
            self.kind == "bash"
            and not _ELSEWHERE.search(self.text)
            and all(
                words[0].rpartition("/")[2] not in _NOT_RUN
                # Programs of hours, servers and their clients.
                and not (program_of(words)[0] or "").endswith(
                    (".py", ".serve_input", ".run_playground")
                )
                for words in self.commands
            )
        )


def fences(page):
    """Yields (line of the fence's first line, kind, body) of a page."""
    text = page.read_text("utf-8")
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 2
        body = re.sub(
            f"^{fence['indent']}", "", fence["body"], flags=re.MULTILINE
        )
        yield line, fence["kind"], body


@functools.cache
def steps(page):
    """Returns the `Step`s of a page, in order."""
    name = str(page.relative_to(ROOT))
    found = []
    for line, kind, body in fences(page):
        parts = [(line, body)]
        if kind in ("bash", "sh"):
            parts = _commands(line, body)
        if kind in ("bash", "sh", "python"):
            found += [
                Step(page=name, line=first, kind=kind, text=text)
                for first, text in parts
            ]
    return found


def _commands(line, body):
    """Yields (line, command), of several lines where a line goes on."""
    lines = body.splitlines()
    start = 0
    while start < len(lines):
        end = start + 1
        if lines[start].strip() and not lines[start].lstrip().startswith("#"):
            while end < len(lines) and _goes_on("\n".join(lines[start:end])):
                end += 1
            yield line + start, "\n".join(lines[start:end]).strip()
        start = end


def _goes_on(text):
    # Bash says nothing of a whole command: not of a loop, a quotation or a
    # here-document without its end.
    said = subprocess.run(
        ["bash", "-n", "-c", text], stderr=subprocess.PIPE
    ).stderr
    return text.endswith("\\") or bool(said)


def program_of(words):
    """Returns what of ours a command runs, and its arguments.

    Args:
        words: The command's.

    Returns:
        A module's name, or the path of a file that is in no module, and the
        rest of the words; None and them all if it is no program of ours.

    Raises:
        KeyError: If bert_tf has no command of that name.
    """
    if words[0] == "bert_tf" and words[1:] not in ([], ["--help"]):
        return COMMANDS[words[1]], words[2:]
    if words[0] != "python":
        return None, words
    if words[1] == "-m" and words[2].startswith("bert_tf."):
        return words[2], words[3:]
    if words[1].endswith(".py"):
        path = pathlib.PurePath(words[1])
        if path.parent.name in ("bert_tf", "data", "export"):
            package = f"bert_tf.{path.parent.name}".removesuffix(".bert_tf")
            return f"{package}.{path.stem}", words[2:]
        return words[1], words[2:]
    return None, words


def parse_flags(commands):
    """Parses commands' flags, without TensorFlow.

    Args:
        commands: [(module, arguments)].

    Returns:
        For each {"error": None or what its flags refuse, "values": {flag:
        value}}.
    """
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "support" / "flag_parser.py"],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
