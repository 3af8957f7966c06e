"""Opacus: DP-SGD on one linear layer, its own calibration, sampler and optimizer."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import opacus
import torch
from opacus.accountants import create_accountant
from opacus.accountants.utils import get_noise_multiplier
from serve import Data, serve
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Rows(Dataset[Any]):
    """Rows that a batch is gathered from in one call: three times faster than one."""

    def __init__(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X = torch.as_tensor(X, dtype=torch.float32)
        self.y = torch.as_tensor(y, dtype=torch.float32)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.y)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one row."""
        return self.X[at], self.y[at]

    def __getitems__(self, at: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a batch."""
        return self.X[at], self.y[at]


noise = lru_cache(get_noise_multiplier)  # a calibration takes seconds


@lru_cache
def spent(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Return what the engine's ``get_epsilon`` says after so many steps."""
    accountant = create_accountant("prv")
    accountant.history = [(multiplier, rate, steps)]
    return float(accountant.get_epsilon(delta))


def fit(data: Data, job: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
    """Train for `epochs` with rate `lr`, batches of `batch` and clipping at `clip`."""
    setting = job["setting"]
    torch.manual_seed(job["seed"])
    loader = DataLoader(
        Rows(data.X, data.y),
        batch_size=setting["batch"],
        collate_fn=lambda batch: batch,
    )
    model = torch.nn.Linear(data.X.shape[1], 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    rate = 1 / len(loader)
    multiplier = noise(
        target_epsilon=job["epsilon"],
        target_delta=job["delta"],
        sample_rate=rate,
        epochs=setting["epochs"],
        accountant="prv",  # what the engine itself uses
    )
    engine = opacus.PrivacyEngine()
    method = getattr(torch.optim, setting["optimizer"])
    optimizer = method(model.parameters(), lr=setting["lr"])
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=multiplier,
        max_grad_norm=setting["clip"],
    )
    kind = torch.nn.BCEWithLogitsLoss if data.classification else torch.nn.MSELoss
    loss, steps = kind(), 0
    for _ in range(setting["epochs"]):
        for X, y in loader:
            optimizer.zero_grad()
            loss(model(X)[:, 0], y).backward()
            optimizer.step()
            steps += 1
    with torch.no_grad():
        margin = model(torch.as_tensor(data.X_test, dtype=torch.float32))[:, 0].double()
    said = {"noise_multiplier": multiplier, "rate": rate, "steps": steps}
    said["claimed"] = spent(multiplier, rate, steps, job["delta"])
    return (torch.sigmoid(margin) if data.classification else margin).numpy(), said


if __name__ == "__main__":
    serve(fit, opacus.__version__)
