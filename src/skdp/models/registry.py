"""Register classes that can be saved. Defining a class registers it.

There are four families of such classes: losses, penalties, samplings and geometries. An
object is saved as ``{"kind": name, ...}`` with the arguments of its constructor. A
subclass that defines a `kind` is added to the `kinds` of its family. No other list has
to be updated.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Self

import numpy as np

from skdp.schema import check


class Registered:
    """The base of each family of classes that can be saved as plain values.

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
        """Return the arguments with which the constructor makes an equal object.

        For a dataclass, these are its fields, except those that follow from others.
        Other classes must override this method.
        """
        check(
            is_dataclass(self),
            f"{type(self).__name__} cannot be saved, because it has no parameters().",
        )
        given = [f.name for f in fields(self) if f.init]  # type: ignore[arg-type]  # checked above
        return {name: getattr(self, name) for name in given}

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the parameters as a dict of plain values."""
        kind = vars(type(self)).get("kind")
        check(
            self.kinds.get(str(kind)) is type(self),
            f"{type(self).__name__} cannot be saved, because it has no kind.",
        )
        plain = {name: _to_plain(value) for name, value in self.parameters().items()}
        return {"kind": kind} | plain

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> Self:
        """Return the object that `to_dict` described."""
        kind = state["kind"]
        check(
            kind in cls.kinds, f"kind must be one of {sorted(cls.kinds)}, got {kind!r}."
        )
        made: Self = cls.kinds[kind](**{k: v for k, v in state.items() if k != "kind"})
        return made


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_to_plain(item) for item in value]
    return value
