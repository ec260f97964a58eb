"""Placement groups: bundles of resources that are reserved together.

Owns what a bundle is in Python, and how tasks and actors are told to run in one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from . import _api, _wasmrun


@dataclasses.dataclass(frozen=True)
class Bundle:
    """One bundle of a group: the `strategy` of what is to run in it."""

    group: str
    number: int

    def __str__(self) -> str:
        return f"group:{self.group}:{self.number}"


class PlacementGroup:
    """Bundles of resources that are reserved together: the `strategy` of what is to run in any of them. A context manager, which
    removes it."""

    def __init__(self, raw: _wasmrun.Group, size: int) -> None:
        self._raw = raw
        self._size = size

    @property
    def id(self) -> str:
        """Its id."""
        return self._raw.id

    def bundle(self, number: int) -> Bundle:
        """The bundle of this number, from 0."""
        if not 0 <= number < self._size:
            raise IndexError(f"the placement group has {self._size} bundles, from 0; got {number}")
        return Bundle(self.id, number)

    def ready(self, timeout: float | None = None) -> PlacementGroup:
        """Waits until tasks can run in all bundles. `GetTimeoutError` after `timeout` seconds, and why they cannot."""
        self._raw.ready(timeout)
        return self

    def remove(self) -> None:
        """Ends it, and what runs in it."""
        self._raw.remove()

    def __str__(self) -> str:
        return f"group:{self.id}"

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id}, {self._size} bundles)"

    def __enter__(self) -> PlacementGroup:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.remove()
        except Exception:
            # What went wrong before counts.
            if kind is None:
                raise


def _amounts(bundle: Mapping[str, float | str]) -> dict[str, int | str]:
    # Of CPUs a float may not be what was written; as text it is.
    amounts: dict[str, int | str] = {name: str(it) if isinstance(it, float) else it for name, it in bundle.items()}
    if "CPU" in amounts and "memory" not in amounts:
        # What a task has for each that asks for nothing.
        amounts["memory"] = f"{256 * max(int(float(amounts['CPU'])), 1)}MiB"
    return amounts


def placement_group(
    bundles: Sequence[Mapping[str, float | str]],
    kind: str = "pack",
    *,
    name: str | None = None,
    detached: bool = False,
    labels: Sequence[str] | None = None,
) -> PlacementGroup:
    """Reserves bundles together, all or nothing: `placement_group([{"CPU": 2}, {"GPU": 0.5, "memory": "1GiB"}], "spread")`.

    A bundle with CPUs and no `memory` has 256 MiB for each. `kind` is `pack`, `spread`, `strict_pack` or `strict_spread`; `labels` has a selector of nodes for each bundle. It may be
    used at once, and what is to run in it waits until it is ready. It ends with the session, unless it is `detached`.
    """
    spec: dict[str, object] = {"kind": kind.lower(), "bundles": [_amounts(it) for it in bundles]}
    if labels is not None:
        spec["label_selectors"] = list(labels)
    raw = _wasmrun.Group.create(_api._session()._raw, json.dumps(spec), name, detached)
    return PlacementGroup(raw, len(bundles))
