"""requirements-tpu.txt names what setup.py does, but for TensorFlow itself."""

import ast
import re

from support.paths import ROOT


def test_a_tpu_vm_gets_every_other_requirement():
    calls = ast.walk(ast.parse((ROOT / "setup.py").read_text("utf-8")))
    (listed,) = [
        ast.literal_eval(node.value)
        for node in calls
        if isinstance(node, ast.keyword) and node.arg == "install_requires"
    ]
    lines = (ROOT / "requirements-tpu.txt").read_text("utf-8").splitlines()
    told = {line for line in lines if line and not line.startswith("#")}
    own = {
        line for line in told if re.match(r"(tensorflow-tpu|libtpu)==", line)
    }
    others = {
        name for name in listed if not re.match("tensorflow(-text)?>", name)
    }
    assert len(own) == 2
    assert told - own == others


def test_every_tool_has_one_version():
    (ruff,) = re.findall('"ruff==(.+)"', (ROOT / "setup.py").read_text("utf-8"))
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall("rev: (.+)", hooks) == [f"v{ruff}"]
