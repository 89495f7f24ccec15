"""What a run means by "key tokens": signals, ratios and how they become weights. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SIGNALS = ("entropy", "visual", "temporal")
DELTAS = ("absolute", "signed")
SCOPES = ("completion", "group")
COMBINES = ("union", "intersection")
WEIGHT_FORMS = ("binary", "softmax", "sigmoid", "linear", "exponential")
NORMALIZES = ("completion", "selected")
BLIND_MODES = ("zero_features", "drop_tokens")
GRANULARITIES = ("frame", "patch")


@dataclass(frozen=True)
class KeyTokenSettings:
    """Key-token reinforcement of Video-KTR (arXiv 2601.19686); the defaults are the paper's rule on the cheap views.

    Args:
        signals: which of ``SIGNALS`` to use; none means plain policy optimisation (every weight is 1).
        top_k: share of a completion's valid tokens a signal keeps, in (0, 1]; one number, or one for each signal.
        delta: ``absolute`` differences of log-probs (paper) or ``signed`` ones (full minus counterfactual; release).
        scope: top tokens of each ``completion`` (paper) or above one quantile of the prompt's ``group`` (release).
        combine: key tokens are the ``union`` (paper) or the ``intersection`` of the signals' tokens.
        weights: ``binary`` mask (paper's best) or a soft weight of every token.
        normalize: tokens the objective's denominator counts: all of the ``completion`` (paper) or the ``selected``.
        mask_kl: whether the weights multiply the KL term as well.
        blind: how the visual signal's counterfactual loses its video.
        granularity: whether the temporal signal's counterfactual shuffles single frames or whole temporal patches.
        permutations: shuffles the temporal score is averaged over.

    Raises:
        ValueError: for an unknown choice or a number out of range; the message names the field.

    Example::

        KeyTokenSettings(signals=("entropy", "visual"), top_k={"entropy": 0.2, "visual": 0.1})
    """

    signals: tuple[str, ...] = SIGNALS
    top_k: float | Mapping[str, float] = 0.2
    delta: str = "absolute"
    scope: str = "completion"
    combine: str = "union"
    weights: str = "binary"
    normalize: str = "completion"
    mask_kl: bool = True
    blind: str = "drop_tokens"
    granularity: str = "patch"
    permutations: int = 1

    def __post_init__(self) -> None:
        unknown = [signal for signal in self.signals if signal not in SIGNALS]
        if unknown or len(set(self.signals)) != len(self.signals):
            raise ValueError(f"signals must be distinct names among {', '.join(SIGNALS)}; got {list(self.signals)}")
        for field, known in (
            ("delta", DELTAS),
            ("scope", SCOPES),
            ("combine", COMBINES),
            ("weights", WEIGHT_FORMS),
            ("normalize", NORMALIZES),
            ("blind", BLIND_MODES),
            ("granularity", GRANULARITIES),
        ):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"{field} must be one of {', '.join(known)}; got {value!r}")
        if self.permutations < 1:
            raise ValueError(f"permutations must be at least 1; got {self.permutations}")
        if isinstance(self.top_k, Mapping):
            missing = [signal for signal in self.signals if signal not in self.top_k]
            unknown = [signal for signal in self.top_k if signal not in SIGNALS]
            if missing or unknown:
                raise ValueError(f"top_k needs one ratio for each of {list(self.signals)}; got {dict(self.top_k)}")
        for signal in self.signals:
            if not 0.0 < self.ratio(signal) <= 1.0:
                raise ValueError(
                    f"top_k of {signal} must be above 0 and at most 1; got {self.ratio(signal)}"
                    " (to switch a signal off, leave it out of signals)"
                )

    def ratio(self, signal: str) -> float:
        """Share of valid tokens that `signal` keeps."""
        return self.top_k[signal] if isinstance(self.top_k, Mapping) else self.top_k
