"""What a check of a data set adds up to: counts, codecs, and rows or files that are there twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ktr.data.inspection import Finding
from ktr.data.rows import Media, Row, duplicate_ids

LISTED = 200
"""Examples of each kind that are listed; the counts are of all."""


def summarize(
    rows: Sequence[Row],
    findings: Mapping[Media | None, Finding],
    verified: Sequence[Mapping[str, Any]],
    rejects: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Counts by reason and source, and everything that is there more than once."""
    of_files = {media: finding for media, finding in findings.items() if media is not None}
    return {
        "rows": {
            "read": len(verified) + len(rejects),
            "verified": len(verified),
            "rejected": len(rejects),
            "by modality": dict(Counter(row.modality for row in rows)),
        },
        "reasons": dict(Counter(reject["reason"] for reject in rejects).most_common()),
        "by_source": _by_source(verified, rejects),
        "files": {
            "checked": len({media.path for media in of_files}),
            "unusable": len({media.path for media, finding in of_files.items() if finding.reason is not None}),
            "one frame, repeated": sum(finding.repeated for finding in of_files.values()),
            "fewer frames than asked for": sum(finding.clamped for finding in of_files.values()),
        },
        "codecs": _codecs(of_files),
        "decoders": dict(Counter(finding.backend for finding in of_files.values() if finding.backend)),
        "duplicate_ids": _listed(duplicate_ids(rows)),
        "duplicate_rows": _listed(_duplicate_rows(rows)),
        "duplicate_files": _listed(_duplicate_files(of_files)),
        "name_collisions": _listed(name_collisions(media.path for media in of_files)),
    }


def _listed(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"count": len(found), "examples": dict(list(found.items())[:LISTED])}


def _by_source(
    verified: Sequence[Mapping[str, Any]], rejects: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in verified:
        counts[record.get("source") or ""]["verified"] += 1
    for reject in rejects:
        counts[reject.get("source") or ""][reject["reason"]] += 1
    return {source: dict(of_source) for source, of_source in sorted(counts.items())}


def _codecs(of_files: Mapping[Media, Finding]) -> dict[str, dict[str, int]]:
    """Files by codec, and how many of them nothing here decodes."""
    codecs: dict[str, Counter[str]] = defaultdict(Counter)
    for finding in of_files.values():
        if finding.codec is not None:
            codecs[finding.codec]["files"] += 1
            codecs[finding.codec]["undecodable"] += finding.reason in ("undecodable", "no_video")
    return {codec: dict(counts) for codec, counts in sorted(codecs.items())}


def _duplicate_rows(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Ids of rows that ask the same of the same media, by the first of them."""
    asked: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for row in rows:
        asked[row.media, row.question, row.options, row.answer].append(row.id)
    return {ids[0]: ids[1:] for ids in asked.values() if len(ids) > 1}


def _duplicate_files(of_files: Mapping[Media, Finding]) -> dict[str, list[str]]:
    """Paths of files with the same content, by the first of them."""
    copies: dict[str, dict[str, None]] = defaultdict(dict)
    for media, finding in of_files.items():
        if finding.content is not None:
            copies[finding.content][media.path] = None
    return {list(paths)[0]: list(paths)[1:] for paths in copies.values() if len(paths) > 1}


def name_collisions(paths: Iterable[str]) -> dict[str, list[str]]:
    """Files of several folders that share a name, or differ from another only in case: they must not be flattened."""
    places: dict[str, dict[str, None]] = defaultdict(dict)
    for path in paths:
        plain = PurePosixPath(path.removeprefix("file://"))
        places[plain.name.casefold()][str(plain)] = None
    return {PurePosixPath(list(found)[0]).name: list(found) for found in places.values() if len(found) > 1}
