"""Pruning the bundled model: orders against 20 random ones on data that chose nothing, then the time that is saved.

The scores need the data beside the repository (STS-B pairs; SST-2 and the classifier fine-tuned on it) and are left
out without it. Heads are chosen on one part and scored on another: random halves of the STS-B pairs, the training and
the development sentences of SST-2. Times: whole and smaller model in turn, one thread, 50 turns.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch

from analysis.curves import Curve
from analysis.datasets import Data, read_data, split
from analysis.latency import compare
from analysis.models import Model, open_model, quiet_libraries
from analysis.pruning import Limits, Order
from analysis.saving import smaller
from analysis.trial import Options, band, prepare
from tests.conftest import ROOT, SST2

DATA = ROOT.parent / "shared" / "data"
ORDERS: tuple[Order, ...] = ("fisher", "importance-once", "importance", "signed", "ablation", "entropy")
SEEDS = 20
MOST = 600  # examples that choose, and that are reported on
SHARES = (0.5, 0.75)  # of the heads, of those that are timed
BATCHES = (1, 16, 64)


def main() -> None:
    """Print both tables of scores and the table of times."""
    torch.set_num_threads(1)
    quiet_libraries()
    model = open_model()
    parts = sys.argv[2:] or ("scores", "times")
    if "scores" in parts and (DATA / "stsb-en-dev.csv").is_file():
        pairs = read_data(str(DATA / "stsb-en-dev.csv"), "similarity", ("0", "1", "2"))
        scores("STS-B dev, halves", model, "similarity", *split(pairs))
        reviews = [_sst2(name) for name in ("train", "dev")]
        scores("SST-2, train and dev", open_model(str(SST2)), "classification", *reviews)
    if "times" in parts:
        times(model)


def _sst2(name: str) -> Data:
    path = DATA / f"sst2-{name}.tsv"
    with open(path, encoding="utf-8") as file:
        columns = tuple(file.readline().rstrip("\n").split("\t"))
    named = ("sentence", "label") if "sentence" in columns else ("0", "1")
    return read_data(str(path), "classification", named)


def scores(title: str, model: Model, task: str, choosing: Data, reporting: Data) -> None:
    """Print what each order scores with 25, 50 and 75% of the heads gone."""
    choosing, reporting = (_some(data) for data in (choosing, reporting))
    options = Options("bench", task, orders=(*ORDERS, "random"), seeds=SEEDS, limits=Limits(step=0.25))  # type: ignore[arg-type]
    made = prepare(options, model, choosing, reporting)
    print(
        f"{title}: {len(choosing)} choose, {len(reporting)} report; heads gone 0, 25, 50, 75, 100%",
        flush=True,
    )
    curves: list[Curve] = []
    for order, seed in made.paths():
        start = time.process_time()
        curves.append(made.curve(order, seed))
        if order != "random":
            took = time.process_time() - start
            print(f"  {order:16s}{_row(curves[-1].score)}   {took:.0f} s", flush=True)
    random = band(curves)
    assert random is not None
    for name, values in (("highest", random.high), ("mean", random.mean), ("lowest", random.low)):
        print(f"  {f'random, {name}':16s}{_row(values)}", flush=True)


def _some(data: Data) -> Data:
    if len(data) <= MOST:
        return data
    return data.take(np.sort(np.random.default_rng(0).permutation(len(data))[:MOST]))


def _row(values: np.ndarray) -> str:
    return "".join(f"{value:9.4f}" for value in values)


def times(model: Model) -> None:
    """Print the time that is saved, beside what the arithmetic allows."""
    print("heads gone  tokens batch   whole ms  smaller ms   saved [quartiles]   allowed   saved/allowed")
    shape = (model.geometry.layers, model.geometry.heads)
    for share in SHARES:
        mask = np.zeros(shape, dtype=bool)
        mask[:, : round(share * shape[1])] = True
        small = smaller(model, mask)
        for tokens in (64, 128):
            for one in compare(model, small, batches=BATCHES, tokens=tokens, turns=50):
                saved = one.saved
                print(
                    f"{share:10.0%} {tokens:7d} {one.batch:5d} {one.whole.median:10.1f} {one.small.median:11.1f}"
                    f" {saved.median:7.1%} [{saved.low:.1%}, {saved.high:.1%}] {one.allowed:8.1%}"
                    f" {saved.median / one.allowed:10.2f}",
                    flush=True,
                )
