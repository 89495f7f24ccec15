"""A small byte-level BPE tokenizer that speaks Qwen-VL's chat format.

It is trained on the toy world's words until no pair is left to merge, so that each of them is one token, with and
without a space before it; any other text falls back to bytes and decodes to itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ktr.data.toy_scenes import VOCABULARY

END_OF_TEXT = "<|endoftext|>"
TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
REPLY_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHAT_WORDS = ("system", "user", "assistant", "\n")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen-VL's turns without its default system turn. It splits no text: what a message says is written as it is."""


def build_toy_tokenizer(words: Iterable[str] = VOCABULARY, *, max_length: int = 4096) -> PreTrainedTokenizerFast:
    """The toy tokenizer: bytes, merges for ``words``, the reply tags, and Qwen-VL's special tokens.

    Args:
        words: texts that become one token each, bare and after a space. None may contain a space.
        max_length: the length in tokens that the tokenizer reports as its limit.

    Raises:
        ValueError: a word is empty or would be split before merging, so that it cannot be one token.
    """
    words = list(dict.fromkeys(words))
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    for word in words:
        if len(splitter.pre_tokenize_str(word)) != 1:
            raise ValueError(f"{word!r} cannot be one token: use letters only, digits only or punctuation only")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2**16,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([*CHAT_WORDS, *words, *(f" {word}" for word in words)], trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in REPLY_TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        extra_special_tokens=[TURN_START, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD],
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )
