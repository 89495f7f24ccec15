"""Key tokens: counterfactual views, scores, selection and token weights, as pure functions on tensors.

``settings`` and ``views`` import no torch, so nothing is imported here.
"""
