"""What others wrote never becomes markup, and the page asks for nothing from elsewhere."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from ktr.reporting.html import attribute, definitions, element, escape, page, png_data, table

HOSTILE = '</pre><script>alert(1)</script>" onload="x" & <b>\x00\x1b[31m\u202egnp'


class Collector(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def parse(html: str) -> Collector:
    collector = Collector()
    collector.feed(html)
    collector.close()
    return collector


@pytest.mark.parametrize(
    "html",
    [
        f"<p>{escape(HOSTILE)}</p>",
        f'<p title="{attribute(HOSTILE)}"></p>',
        element("p", "", title=HOSTILE),
    ],
)
def test_hostile_text_stays_text(html):
    parsed = parse(html)
    assert [tag for tag, _ in parsed.tags] == ["p"]
    assert set(parsed.tags[0][1]) <= {"title"}
    shown = parsed.text or parsed.tags[0][1]["title"]
    assert '<script>alert(1)</script>" onload="x" & <b>' in shown
    assert "\x00" not in html and "\x1b" not in html and "\u202e" not in html
    assert "\u2400" in shown and "\\u202e" in shown


def test_attribute_keeps_line_breaks():
    escaped = attribute("a\nb\tc")
    assert "\n" not in escaped
    assert parse(f'<p title="{escaped}">').tags[0][1]["title"] == "a\nb\tc"


def test_page_allows_no_scripts_and_no_other_source():
    html = page("<title>&", "<p>body</p>")
    parsed = parse(html)
    policy = next(attrs["content"] for tag, attrs in parsed.tags if attrs.get("http-equiv"))
    assert "default-src 'none'" in policy and "script-src" not in policy
    assert not {"script", "link", "iframe"} & {tag for tag, _ in parsed.tags}
    assert "@import" not in html and "url(" not in html and "http://" not in html and "https://" not in html
    assert "<title>&lt;title&gt;&amp;</title>" in html


def test_png_data_holds_the_pixels_and_shrinks_large_images():
    pixels = np.random.default_rng(0).integers(256, size=(20, 30, 3), dtype=np.uint8)
    data = png_data(pixels)
    decoded = Image.open(io.BytesIO(base64.b64decode(data.removeprefix("data:image/png;base64,"))))
    assert np.array_equal(np.asarray(decoded), pixels)
    small = Image.open(io.BytesIO(base64.b64decode(png_data(pixels, max_side=15).split(",")[1])))
    assert small.size == (15, 10)


def test_definitions_flatten_and_tables_have_row_heads():
    parsed = parse(definitions({"python": "3.12", "packages": {"torch": "2.14", "vllm": None}}))
    assert parsed.text == "python3.12packages.torch2.14"
    tags = [tag for tag, _ in parse(table(["a", "b"], [["x", "1"], ["y", "2"]])).tags]
    assert tags.count("th") == 4 and tags.count("td") == 2
