"""Registry of classes that can be saved; defining a class registers it.

A loss, a penalty, a sampling and a geometry are each saved as ``{"kind": name, ...}``
with the arguments of their constructor. A subclass that defines a `kind` is added to
its family's `kinds`; there is no other list.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np

from skdp.schema import check


class Registered:
    """A family of classes that can be written as plain values and read back.

    Attributes
    ----------
    kind : str
        The name that a class is saved under.
    kinds : dict
        Every class of the family, by kind.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Registered in cls.__bases__:
            cls.kinds = {}
        elif "kind" in vars(cls):
            cls.kinds[cls.kind] = cls

    def parameters(self) -> dict[str, Any]:
        """Return the arguments that make an equal object: the fields of a dataclass."""
        check(
            is_dataclass(self),
            f"{type(self).__name__} cannot be saved, because it has no parameters().",
        )
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, Any]:
        """Return kind and parameters as plain values."""
        kind = vars(type(self)).get("kind")
        check(
            self.kinds.get(str(kind)) is type(self),
            f"{type(self).__name__} cannot be saved, because it has no kind.",
        )
        plain = {name: _to_plain(value) for name, value in self.parameters().items()}
        return {"kind": kind} | plain

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """Make an object from the values that `to_dict` returned."""
        kind = state["kind"]
        check(kind in cls.kinds, f"kind must be one of {sorted(cls.kinds)}.")
        made: Self = cls.kinds[kind](**{k: v for k, v in state.items() if k != "kind"})
        return made


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value
