"""Take real tables from a fit to a model card: make bench NAME=whole-tables.

Each table is fitted at ε = 1 with defaults. Its summary is printed, the model is scored
at ε = 1, and reports, a model card, a scikit-learn pipeline and an ONNX graph are
written and read again. The tables are those of `r_tables`, which says how to install
them, and synthetic hospital stays. docs/evidence/whole_tables.md is written at the end
if all tables are there.

    python benchmarks/whole_tables.py [--only flchain] [--output DIRECTORY]
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import r_tables

import skdp
from skdp.estimators.fit import ESTIMATORS

NAMES = ["flchain", "Hdma", "cut", "diamonds", "SLID", "DoctorContacts", "rwm5yr"]
#: Scores on the page.
SHOWN = ("accuracy", "auc", "d2", "r2")
PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "whole_tables.md"
HEAD = """# Whole tables

Written by `make bench NAME=whole-tables`. Each table is fitted with the defaults at ε
= 1 and scored at ε = 1 on the same rows. Its summary, the page of the report, the
model card as Markdown and JSON, the page of the scores, plots, a scikit-learn
pipeline and an ONNX graph are written, and the pipeline is read again. Real tables
are those of R's packages, with ranges as a person would write them; stays are
synthetic. "Told" counts the coefficients that have an interval. Scores are shown with
their 95 % intervals. R² of counts is low, because counts vary around their mean.

| table | model | rows | coefficients | told | scores | predictions of the pipeline |
|---|---|---|---|---|---|---|"""


def load(name: str) -> tuple[Any, Any, Any, str]:
    """Return features, target, schema and the name of the model."""
    if name == "stays":
        data = skdp.make_hospital(20_000, random_state=1)
        import pandas as pd

        frame = pd.DataFrame(data.columns)
        return frame.drop(columns=["readmitted"]), frame["readmitted"], data.schema, ""
    found = r_tables.load(name)
    return found.X, found.y, found.schema, r_tables.SOURCES[name].model


def run(name: str, folder: Path) -> str:
    """Fit, summarise, score, report and export one table. Return its line."""
    X, y, schema, kind = load(name)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ESTIMATORS[kind or "logistic"](schema=schema).fit(X, y)
    spent = time.perf_counter() - start
    print(f"\n######## {name}: {len(X):,} rows, {spent:.1f} s\n")
    summary = model.summary()
    print(summary)
    scores = skdp.evaluate(model, X, y, epsilon=1.0)
    print(f"\n{scores}")
    where = folder / name
    model.save(where / "model")
    for form, ending in (("html", "html"), ("markdown", "md"), ("json", "json")):
        given = {} if form == "html" else {"scores": scores}
        text = skdp.report(model, form=form, **given)
        (where / f"card.{ending}").write_text(text, encoding="utf-8")
    (where / "scores.html").write_text(skdp.report(scores), encoding="utf-8")
    figure = model.plot().figure
    figure.savefig(where / "coefficients.png", dpi=70)
    if scores.roc:
        scores.plot()[0].figure.savefig(where / "curves.png", dpi=70)
    joblib.dump(model.to_sklearn(), where / "pipeline.joblib")
    again = joblib.load(where / "pipeline.joblib").predict(X)
    same = model.predict(X)
    if hasattr(model, "classes_"):
        agrees = f"{np.mean(again == same):.0%} the same"
    else:
        agrees = f"within {np.abs(again - same).max():.0e}"
    print(f"\npredictions of the pipeline: {agrees}")
    (where / "model.onnx").write_bytes(model.to_onnx().SerializeToString())
    told = sum(np.isfinite(line.std) for line in summary.lines)
    shown = [
        f"{key} {one.value:.3g} ({one.low:.3g} to {one.high:.3g})"
        for key, one in scores.scores.items()
        if key in SHOWN and not one.too_noisy
    ]
    kind = type(model).__name__
    return (
        f"| {name} | {kind} | {len(X):,} | {len(summary.lines)} | {told} "
        f"| {', '.join(shown)} | {agrees} |"
    )


def main() -> None:
    """Run all tables that can be read here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=None)
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    known = ["stays", *(name for name in NAMES if name in r_tables.names())]
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            run(name, options.output or Path(folder))
            for name in known
            if options.only in (None, name)
        ]
    if len(lines) == len(NAMES) + 1:
        PAGE.write_text("\n".join([HEAD, *lines]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import matplotlib as mpl

    mpl.use("Agg")
    main()
