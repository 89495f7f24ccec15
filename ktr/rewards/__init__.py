"""Rewards: reading a reply, scoring it by problem type, and the reward components of a run. Imports no torch."""

from ktr.rewards.problem_types import PROBLEM_TYPES, canonical_type, check_problem_types
from ktr.rewards.scoring import METRICS, POLICIES, score_reply
from ktr.rewards.verdict import Status, Verdict

__all__ = [
    "METRICS",
    "POLICIES",
    "PROBLEM_TYPES",
    "Status",
    "Verdict",
    "canonical_type",
    "check_problem_types",
    "score_reply",
]
