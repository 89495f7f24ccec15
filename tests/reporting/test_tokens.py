"""Token pages show every token as written, coloured by the signals that chose it, with its scores at hand."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from ktr.reporting.tokens import TokenPage, frame_images, token_sections, token_strings, write_token_page


class Tokens(HTMLParser):
    """Collects token spans: classes, style, tip, text; and every tag."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.spans: list[dict[str, str]] = []
        self.tags: list[str] = []
        self._open = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        assert not any(name.startswith("on") for name in values)
        if "tok" in (values.get("class") or "").split():
            self.spans.append({**values, "text": ""})
            self._open = True

    def handle_endtag(self, tag):
        self._open = self._open and tag != "span"

    def handle_data(self, data):
        if self._open:
            self.spans[-1]["text"] += data


def test_tokens_carry_signals_scores_and_weights():
    page = TokenPage(
        heading="h",
        prompt="p",
        tokens=["the", " red", " disc"],
        scores={"entropy": [0.5, 0.25, 0.0], "visual": [None, 2.0, float("nan")]},
        selected={"entropy": [True, True, False], "visual": [False, True, False]},
        weights=[1.0, 1.0, 0.0],
    )
    spans = Tokens(token_sections([page])).spans
    assert [span["class"] for span in spans] == ["tok k-e", "tok k-e k-v", "tok"]
    assert spans[1]["data-tip"] == "' red'  ·  entropy 0.25 (key)  ·  visual 2 (key)  ·  weight 1"
    assert spans[2]["data-tip"] == "' disc'  ·  entropy 0  ·  visual none  ·  weight 0"
    assert spans[0]["style"] == "--e:1.00"
    assert "style" not in spans[2]
    assert "temporal" not in "".join(span["data-tip"] for span in spans)


@pytest.mark.parametrize("chosen", [("entropy", "temporal"), ("visual", "temporal"), ("entropy", "visual", "temporal")])
def test_every_mixture_has_a_fill_of_its_own(chosen):
    page = TokenPage(heading="", prompt="", tokens=["x"], selected={name: [True] for name in chosen})
    expected = ["tok", *(f"k-{name[0]}" for name in chosen)]
    assert Tokens(token_sections([page])).spans[0]["class"].split() == expected
    style = resources.files("ktr.reporting").joinpath("style.css").read_text(encoding="utf-8")
    assert "".join(f".k-{name[0]}" for name in chosen) + " {" in style


def test_model_text_is_never_markup(tmp_path, token_page):
    hostile = ["<script>alert(1)</script>", '"', "'", ' onmouseover="x"', "&lt;", "</span>", "\x00", "<!--", "]]>"]
    page = token_page(
        hostile,
        heading="<script>1</script>",
        prompt="</div><script>2</script>",
        gold='"><script>3</script>',
        answer="<img src=x onerror=y>",
        note="<script>4</script>",
        rewards={"<script>5</script>": None},
    )
    html = write_token_page(tmp_path / "t.html", [page], title="<script>6</script>").read_text(encoding="utf-8")
    parsed = Tokens(html)
    assert "script" not in parsed.tags
    assert parsed.tags.count("img") == 8
    assert [span["text"] for span in parsed.spans] == [*hostile[:6], "\u2400", *hostile[7:]]
    assert "<script" not in html.lower()


def test_newlines_are_marked_and_kept():
    page = TokenPage(heading="", prompt="", tokens=["a\n\nb", "\t"])
    spans = Tokens(token_sections([page])).spans
    assert spans[0]["text"] == "a↵\n↵\nb"
    assert spans[0]["data-tip"].startswith(r"'a\n\nb'")
    assert spans[1]["text"] == "\t"


def test_unmeasured_completion_is_plain_text(token_page):
    page = token_page(["a", " b"], scores={}, selected={}, weights=None)
    spans = Tokens(token_sections([page])).spans
    assert [(span["class"], span["data-tip"]) for span in spans] == [("tok", "'a'"), ("tok", "' b'")]


def test_lengths_and_signals_are_checked():
    with pytest.raises(ValueError, match="scores of visual has 1 entries for 2 tokens"):
        TokenPage(heading="", prompt="", tokens=["a", "b"], scores={"visual": [1.0]})
    with pytest.raises(ValueError, match="weights has 3"):
        TokenPage(heading="", prompt="", tokens=["a", "b"], weights=[1, 1, 1])
    with pytest.raises(ValueError, match=r"\['audio'\]"):
        TokenPage(heading="", prompt="", tokens=["a"], selected={"audio": [True]})


def test_tensors_are_accepted():
    scores = torch.tensor([0.5, 1.0])
    page = TokenPage(
        heading="", prompt="", tokens=["a", "b"], scores={"entropy": scores}, selected={"entropy": scores > 0.7},
        weights=scores,
    )  # fmt: skip
    spans = Tokens(token_sections([page])).spans
    assert [span["class"] for span in spans] == ["tok", "tok k-e"]
    assert spans[0]["data-tip"] == "'a'  ·  entropy 0.5  ·  weight 0.5"


def test_frames_are_shown_with_times_and_thinned_evenly():
    pixels_T3HW = torch.arange(40, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8)
    assert [frame.caption for frame in frame_images(pixels_T3HW[:2], (0.0, 0.5))] == ["0.00 s", "0.50 s"]
    thinned = frame_images(pixels_T3HW, limit=4)
    assert [frame.caption for frame in thinned] == ["0", "13", "26", "39"]
    assert all(frame.data.startswith("data:image/png;base64,") for frame in thinned)
    with pytest.raises(ValueError, match="uint8"):
        frame_images(np.zeros((2, 3, 8, 8), dtype=np.float32))


class ByteLevelTokenizer:
    pieces = {1: "Ġred", 2: "Ċ", 3: "ä½", 4: "ł", 5: "<|im_end|>", 6: "你", 7: "Ã©"}

    def convert_ids_to_tokens(self, ids):
        return [self.pieces.get(number) for number in ids]


def test_token_strings_are_readable():
    strings = token_strings(ByteLevelTokenizer(), [1, 2, 3, 4, 5, 6, 7, 99])
    assert strings == [" red", "\n", "\\xe4\\xbd", "\\xa0", "<|im_end|>", "你", "é", "[99]"]


def test_token_strings_of_a_real_byte_level_vocabulary():
    pre = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "a\n\t 你好 é\u00ad\u00a0~"
    pieces = [character for piece, _ in pre.pre_tokenize_str(text) for character in piece]
    vocabulary = {piece: number for number, piece in enumerate(sorted(set(pieces)))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))

    class Wrapped:
        def convert_ids_to_tokens(self, ids):
            return [tokenizer.id_to_token(number) for number in ids]

    strings = token_strings(Wrapped(), [vocabulary[piece] for piece in pieces])
    raw = b"".join(bytes([int(s[2:], 16)]) if s.startswith("\\x") else s.encode("utf-8") for s in strings)
    assert raw.decode("utf-8") == text
