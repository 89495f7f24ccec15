from __future__ import annotations

import pytest

from ktr.data.toy_scenes import VOCABULARY
from ktr.models.toy_tokenizer import REPLY_TAGS, SPECIAL_TOKENS, build_toy_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_toy_tokenizer()


def encode(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("word", [*VOCABULARY, *SPECIAL_TOKENS, *REPLY_TAGS, "user", "assistant", "\n"])
def test_a_word_a_tag_and_a_control_token_are_one_token_each(tokenizer, word):
    assert len(encode(tokenizer, word)) == 1
    if word in VOCABULARY:
        assert len(encode(tokenizer, " " + word)) == 1


def test_a_whole_reply_has_a_token_a_word(tokenizer):
    reply = "<think>red then blue.</think><answer>red</answer><|im_end|>"
    tokens = tokenizer.convert_ids_to_tokens(encode(tokenizer, reply))
    assert len(tokens) == 10 and tokens[-1] == "<|im_end|>"


TEXTS = ["", "unknown words", "  two  spaces\n\n\ttab", "e\u0301 é 漢字 🙂 ﬁ", "\x00\x7f\u2028", "0.5%"]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back_through_bytes(tokenizer, text):
    assert tokenizer.decode(encode(tokenizer, text)) == text


def test_tags_are_text_and_control_tokens_are_not(tokenizer):
    ids = encode(tokenizer, "<think>red</think><|im_end|>")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>red</think>"
    assert set(tokenizer.all_special_tokens) == set(SPECIAL_TOKENS)
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"


def test_the_chat_has_qwens_turns_and_no_system_turn_of_its_own(tokenizer):
    user = {"role": "user", "content": [{"type": "video"}, {"type": "image"}, {"type": "text", "text": "what?"}]}
    chat = tokenizer.apply_chat_template([user], tokenize=False, add_generation_prompt=True)
    assert chat == (
        "<|im_start|>user\n<|vision_start|><|video_pad|><|vision_end|><|vision_start|><|image_pad|><|vision_end|>what?"
        "<|im_end|>\n<|im_start|>assistant\n"
    )
    turns = [{"role": "system", "content": "Be brief."}, user, {"role": "assistant", "content": "red"}]
    chat = tokenizer.apply_chat_template(turns, tokenize=False)
    assert chat.startswith("<|im_start|>system\nBe brief.<|im_end|>\n") and chat.endswith("assistant\nred<|im_end|>\n")


def test_the_same_words_give_the_same_tokenizer():
    assert build_toy_tokenizer().backend_tokenizer.to_str() == build_toy_tokenizer().backend_tokenizer.to_str()


@pytest.mark.parametrize("word", ["two words", "", "red?"])
def test_a_word_that_cannot_be_one_token_is_refused(word):
    with pytest.raises(ValueError, match="cannot be one token"):
        build_toy_tokenizer([word])
