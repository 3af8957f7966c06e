"""`skdp export`: write a saved model in a form that other programs read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Force,
    ModelDirectory,
    Quiet,
    check_out,
    escape,
    load_model,
    print_json,
)

EXAMPLES = [
    "skdp export model --out model.onnx",
    "skdp export model --out model.joblib",
]


def export_command(
    model: ModelDirectory,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File to write: .onnx for ONNX, .joblib for a scikit-learn pipeline.",
        ),
    ],
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a saved model as an ONNX graph or a scikit-learn pipeline.

    Both make the same predictions and are as private as the model. A .joblib file is a
    pickle, which can run code when it is loaded. So load only files that you trust.
    skdp must be installed to load it. An .onnx file needs no skdp.
    """
    from skdp.schema import check

    endings = " or ".join(WRITERS)
    check(out.suffix in WRITERS, f"--out must end in {endings}, got {str(out)!r}.")
    check_out(out, force)
    check(not out.is_dir(), f"--out must be a file, but {str(out)!r} is a directory.")
    found = load_model(model)
    form, write = WRITERS[out.suffix]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
        path = Path(folder) / out.name
        write(found, path)
        os.replace(path, out)
    if as_json:
        inputs = found.schema_.inputs
        print_json({"out": str(out), "form": form, "inputs": inputs})
    elif not quiet:
        typer.echo(escape(f"{form} written to {out}"))


def _write_onnx(model: Any, path: Path) -> None:
    path.write_bytes(model.to_onnx().SerializeToString())


def _write_pipeline(model: Any, path: Path) -> None:
    import joblib

    joblib.dump(model.to_sklearn(), path)


#: For each file extension, the name of the format and the function that writes it.
WRITERS: dict[str, tuple[str, Callable[[Any, Path], None]]] = {
    ".onnx": ("ONNX graph", _write_onnx),
    ".joblib": ("scikit-learn pipeline", _write_pipeline),
}
