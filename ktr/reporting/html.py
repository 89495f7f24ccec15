"""HTML building blocks: escaping, images as data, and the page shell with its style.

Everything a model or a data set wrote passes through `escape`, in text and in attributes alike. The page loads
nothing: its content policy forbids scripts and any source but inline styles and `data:` images.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
# C0 controls cannot stand in HTML: they are shown as the pictures Unicode has for them. Direction overrides would
# reorder the text around them.
_VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
_VISIBLE |= {0x7F: "\u2421"} | {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def escape(text: Any) -> str:
    """Text safe inside elements and inside quoted attributes."""
    return html.escape(str(text).translate(_VISIBLE), quote=True)


def attribute(text: Any) -> str:
    """`escape` for a quoted attribute whose line breaks must survive."""
    return escape(text).replace("\n", "&#10;").replace("\t", "&#9;")


def element(tag: str, content: str = "", **attributes: str) -> str:
    """An element around content that is HTML already; attribute values are escaped, `class_` means class."""
    pairs = "".join(f' {name.rstrip("_").replace("_", "-")}="{attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{pairs}>{content}</{tag}>"


def table(head: list[str], rows: list[list[str]], *, class_: str = "") -> str:
    """A table of cells that are HTML already; the first column heads its row."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    )
    inner = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll">{element("table", inner, class_=class_ or "figures")}</div>'


def definitions(values: Mapping[str, Any]) -> str:
    """A definition list; nested mappings join their keys with dots, None is left out."""
    return element("dl", "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in _flat(values)), class_="facts")


def png_data(pixels_HW3: NDArray[np.uint8], *, max_side: int = 256) -> str:
    """An RGB image `(H, W, 3)` as a PNG `data:` address, shrunk when a side is longer than `max_side` pixels."""
    image = Image.fromarray(pixels_HW3, mode=None)
    if max(image.size) > max_side:
        image.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def page(title: str, body: str) -> str:
    """A whole HTML document around a body."""
    style = resources.files("ktr.reporting").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{attribute(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
        elif value is not None:
            pairs.append((f"{prefix}{key}", value))
    return pairs
