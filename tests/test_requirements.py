"""All files that name Python's and TensorFlow's releases name the same."""

import ast
import re

from support.paths import ROOT


def read(path):
    return (ROOT / path).read_text("utf-8")


def test_a_tpu_vm_gets_every_other_requirement():
    calls = ast.walk(ast.parse(read("setup.py")))
    (listed,) = [
        ast.literal_eval(node.value)
        for node in calls
        if isinstance(node, ast.keyword) and node.arg == "install_requires"
    ]
    lines = read("requirements-tpu.txt").splitlines()
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
    (ruff,) = {*re.findall('"ruff==(.+)"', read("setup.py"))}
    hooks = read(".pre-commit-config.yaml")
    assert re.findall("rev: (.+)", hooks) == [f"v{ruff}"]


def test_the_python_versions_are_the_same():
    assert 'python_requires=">=3.11,<3.14"' in read("setup.py")
    assert "(3, 11) <= sys.version_info < (3, 14)" in read("Makefile")
    for path in (
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
        "docs/tpu.md",
        "requirements-tpu.txt",
    ):
        found = re.findall(r"Python (3\.\d+) to (3\.\d+)", read(path))
        assert {*found} == {("3.11", "3.13")}, path


def test_the_releases_of_tensorflow_are_the_same():
    setup = read("setup.py")
    pattern = r'"tensorflow[][a-z-]*>=([\d.]+),.*<([\d.]+)[";]'
    wanted = re.findall(pattern, setup)
    assert len(wanted) == 5
    assert {*wanted} == {("2.20", "2.22")}
    assert "TensorFlow 2.20 or 2.21 and Keras 3.12 or later" in " ".join(
        read("README.md").split()
    )
    assert '"keras>=3.12,<4"' in setup
    makefile = re.search(r"SERVING_RELEASES \?= (.*)", read("Makefile"))[1]
    releases = makefile.replace(" ", ", ")
    for path in ("docs/exactness.md", "export/serving/README.md"):
        assert f"tensorflow-text {releases}" in read(path), path


def test_the_changelog_has_the_release():
    headings = re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.MULTILINE)
    (version,) = re.findall('__version__ = "(.+)"', read("bert_tf/__init__.py"))
    assert [each for each in headings if each != "Unreleased"][0] == version


def test_the_oldest_releases_are_those_of_setup():
    recipe = read("Makefile").split("\n.venv-oldest/installed:")[1]
    pattern = re.search(r"grep -o '(.*?)' setup.py", recipe)[1]
    oldest = {*re.findall(pattern, read("setup.py"))}
    assert "keras>=3.12" in oldest and "pytest>=8" in oldest
    names = re.findall(r'"([a-z-]+)>=', read("setup.py"))
    assert {each.partition(">")[0] for each in oldest} == {*names}


def test_the_page_of_versions_is_that_of_setup():
    page = read("docs/versions.md")
    listed = {
        node.arg: ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(read("setup.py")))
        if isinstance(node, ast.keyword)
        and node.arg in ("install_requires", "extras_require")
    }
    rows = dict(re.findall(r"^\| ([\w-]+) \| (`[<>=].+?`|any) \|", page, re.M))
    needed = {
        re.match(r"[\w-]+", each)[0]: each
        for each in listed["install_requires"]
    }
    assert rows == {
        name: f"`{each[len(name) :]}`" if each != name else "any"
        for name, each in needed.items()
    }
    extras = re.findall(r"^\| `(\w+)` \| .*? \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _ in extras] == [*listed["extras_require"]]
    for name, told in extras:
        if name not in ("docs", "test"):
            assert re.findall("`(.+?)`", told) == listed["extras_require"][name]


def test_the_page_of_versions_is_that_of_the_other_files():
    page = " ".join(read("docs/versions.md").split())
    for line in ("tensorflow-tpu", "libtpu"):
        (version,) = re.findall(
            f"^{line}==(.+)$", read("requirements-tpu.txt"), re.M
        )
        assert f"| {line} | {version} |" in page
    (text,) = {*re.findall(r"tensorflow-text==(\S+)", read("docs/tpu.md"))}
    assert f"| tensorflow-text | {text} |" in page
    makefile = read("Makefile")
    releases = re.search(r"SERVING_RELEASES \?= (.*)", makefile)[1]
    assert f"| {releases.replace(' ', ', ')} |" in page
    tools = dict(re.findall(r"(jax|jaxlib|libtpu)==(\S+)", makefile))
    told = "jax {jax}, jaxlib {jaxlib} and libtpu {libtpu}"
    assert told.format(**tools) in page
    image = re.search(
        r"image: (\S+)", read("export/serving/docker-compose.yml")
    )[1]
    assert f"`{image}`" in page
    # The oldest: what `make test-oldest` installs.
    for name in ("tensorflow", "keras"):
        bound = re.search(rf'"{name}>=([\d.]+)', read("setup.py"))[1]
        assert re.search(rf"\| {name} \| {bound}\.0 \|", page, re.IGNORECASE)
