"""Figures, data sets, systems and samplings: whatever files lie in their folders."""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


@cache
def modules(folder: str) -> dict[str, ModuleType]:
    """Every module of a folder by the name of its file, in alphabetical order.

    Parameters
    ----------
    folder : {"figures", "data", "systems", "samplings"}
        Where to look. Files whose names start with an underscore are left out.
    """
    names = sorted(path.stem for path in (HERE / folder).glob("[!_]*.py"))
    return {name: import_module(f"experiments.{folder}.{name}") for name in names}
