"""A tiny h264 clip, three grey frames of 32x32, by which a decoder shows that it works here."""

from __future__ import annotations

import base64
import zlib

BRIGHTNESS = (40.0, 120.0, 200.0)
"""Mean RGB value of each frame."""

_CLIP = (
    "eNp9VE+IW0UYn2xqKVIPtmvpYZVRt1Bkk33vJU1rYKDrUg3USg/agwiPycy8fY/MvHmZmWSTiqDgYT3ZU2+CeBMUFISeCgqlBz0LLfRgEaRe3I"
    "uHvWj85iVr0u2f4c18/37fb2a+bxKEEE7cuMisVggtIS9hRnTIQlU0Q4Sqq0rrIUJIqmHK0UOj+gChyhqqIP/NR+Vh1EH7PHrqWILvHWdoD/QP"
    "XK/cs/ooG+yLnr7PY/fFs4nQquDOglwR0rp5xoy3zK3cVjyjPkPxg3c/DfMoeu9WadRSLs1+ZJhxsYi8Arbu0JxL4TGVvsryBJTloSpJF4+5yq"
    "exFW5EsnCNowMj8eyAoXVdCfq31lm+gPnCN+0JpfCXxqgDsvNExMFxcjKBtQGsmxWOnp3cRye2QH7zw8U3fEeW/HL6pdVL5yvocLp76OIrP/6z"
    "t+cTl7vOzCr65q/7ZNaV1d7fGjp6qMTCJRb9fq6Ajx3wVWcSQ+zq4hOE1/IRyBdgnpjyMT3Prb4LsjvgznfxfSVK6cfLix2DLhtaFHLx9rVs+i"
    "xOfe20J3yR0zK5rNvbdJi0onoIXxCBfSQxAnq+9J0CFEh2+JnJJL534c+bf9zt3Li+dgffffWv3VHUauIaZtoIHLbOgNqpg2v90uULb9WaeOPK"
    "JsS4YBDY1MVYisThKAgatSiIPDp1rmivr29vb9f9G9OS5nVtttY9bz11SgJGFy7TuW1jRruUkRDDO4KVi67UrEfCdtAOMM2pHFtBglGjHYzCsI"
    "GVIKkYYTvognYWF3YMSbDGhpOwHkASLFhlI8Fjzwi6iA3NtwQJW5ilRisaQ2qInRFSZha0c6NznDlQWF9BAheUX9W5IFG4FoY4odbFhe1lhUdM"
    "CfpFrJPECkdqEXapgQxPJLXu0RSMeO6zMmNi7ghwbso9WKao8+fIcieMpAACf1cODB3HTKuCOrAZlAj+YrIcKABoqMckhirhqbZFtpW6gkS4J8"
    "YQJtGZYKbG8NslYYAtE7lgA0eaAS4JfFWMsCmkGxb/f2IfN4wwk2AFvwrhTwYGaUA9cd+fhwT1FqiFJy4lHZHW66BYJwrSxFkBdYaeQhuAi/ah"
    "hb4h6GN4dsfEzqfPTf79+8u95V+s/fmrD3+/D97nN3Z2zpbe499veudvHrqxc23qXP7pwe5rn+1+/sl/eAdY4g=="
)


def clip_bytes() -> bytes:
    """The clip as an mp4 file's content."""
    return zlib.decompress(base64.b64decode(_CLIP))
