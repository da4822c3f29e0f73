"""Notebooks as pages of the site, with the outputs that are stored in them."""

import base64
import json
import re


def pages(name, text):
    """Returns {name on the site: content} of a notebook and its pictures.

    Args:
        name: The page's, with .md at its end.
        text: The notebook's JSON.
    """
    parts, pictures = [], {}
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(_fence("python", source))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name.removesuffix('.md')}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![]({picture.rpartition('/')[2]})")
            elif "text/html" in data:
                parts.append("".join(data["text/html"]))
            else:
                told = output.get("text") or data.get("text/plain", "")
                parts.append(_fence("text", "".join(told)))
    return {name: "\n\n".join(parts) + "\n", **pictures}


def _fence(language, text):
    longest = max(map(len, re.findall("`+", text)), default=2)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"
