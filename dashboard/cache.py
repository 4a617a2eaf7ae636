"""The only place that caches. Keys are names, texts and settings, never models or arrays.

Models and maps are shared by all sessions as they are, so nothing may change them; what is copied on each
hit is small.
"""

from __future__ import annotations

import gc
import os
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from analysis.maps import AttentionMaps, Head, Specials, Units, in_units, pool, with_specials

if TYPE_CHECKING:
    from analysis.answers import Answer
    from analysis.lenses import HeadVectors
    from analysis.models import Model
    from analysis.senses import Senses
    from analysis.toy import Toy
    from analysis.toy_pruning import Pruned
    from analysis.trained_toy import Progress

DEVICE = re.compile(r"#(cuda|mps)$")
PINNED = re.compile(r"(\w[\w.-]*(?:/[\w.-]+)?)@([^@\s]+)")  # a hub id and its revision

RESAMPLES = 2_000  # of heads, for the interval of a rank correlation
TILE = 48  # cells a side of a small map
MOST_COURSES = 16  # trainings of the Learn pages that are kept
NOTHING = 255  # in a small map what is drawn as nothing


@dataclass(frozen=True)
class Ready:
    """That the libraries are loaded, and the devices they offer."""

    devices: tuple[str, ...]


@st.cache_resource(show_spinner=False)
def libraries() -> Ready:
    """Load torch and transformers once, and take all they made out of the garbage collector's way.

    Streamlit collects after every rerun; going through the libraries' objects each time would cost most of
    a click.
    """
    import transformers.models.bert.modeling_bert  # noqa: F401

    from analysis.models import devices, quiet_libraries

    quiet_libraries()
    gc.collect()
    gc.freeze()
    return Ready(tuple(devices()))


@st.cache_resource(show_spinner=False)
def _opened() -> dict[str, str]:
    """The sources that someone opened on this server, which a link may therefore open too."""
    return {}


_OPENED_LOCK = threading.Lock()


def opened() -> list[str]:
    """Return the names of the sources opened so far, apart from those that ship."""
    with _OPENED_LOCK:
        return list(_opened())


@st.cache_resource(max_entries=2, show_spinner=False)
def source(name: str, revision: str | None, device: str) -> Model | Toy:
    """Open a model or the toy; two stay in memory. Raises ModelError."""
    libraries()
    from analysis.capture import open_source
    from analysis.messages import ModelError
    from analysis.models import BUNDLED, Model
    from analysis.toy import TOY

    found = open_source(name, revision=revision, device=device)
    if isinstance(found, Model) and found.gone.all():
        raise ModelError(
            "All heads of {name} were removed: there is nothing to see of it. Choose another model.",
            name=name,
        )
    if name not in (BUNDLED, TOY):
        with _OPENED_LOCK:
            _opened()[key_of(name, revision, device)] = name
    return found


def key_of(name: str, revision: str | None, device: str) -> str:
    """Return the one string by which a session and a link name a source: name[@revision][#device]."""
    return name + (f"@{revision}" if revision else "") + (f"#{device}" if device != "cpu" else "")


def parts_of(key: str) -> tuple[str, str | None, str]:
    """Return the name, revision and device that `key_of` put together; a folder may hold @ and #."""
    device = DEVICE.search(key)
    name = key[: device.start()] if device else key
    pinned = None if os.path.isdir(os.path.expanduser(name)) else PINNED.fullmatch(name)
    name, revision = pinned.groups() if pinned else (name, None)
    return name, revision, device.group(1) if device else "cpu"


@st.cache_resource(max_entries=3, show_spinner=False)
def maps(key: str, text: str, pair: str | None, units: Units) -> AttentionMaps:
    """Return the maps of a text under the source ``key``, by pieces or words; the arrays are read-only."""
    if units == "words":
        found = in_units(maps(key, text, pair, "pieces"), units)
    else:
        found = _capture(key, text, pair)
    found.weights.setflags(write=False)
    return found


@st.cache_resource(max_entries=3, show_spinner=False)
def lens_maps(key: str, text: str, pair: str | None, units: Units, lens: str) -> AttentionMaps:
    """Return the maps of a text through a lens: "norms", or "rollout", which has one map a layer."""
    from analysis.lenses import lengths, norm_weighted, rollout

    whole = maps(key, text, pair, "pieces")
    if lens == "rollout":
        found = rollout(whole)
    else:
        found = norm_weighted(whole, lengths(_one_thread(key), text, pair))
    found = in_units(found, units)
    found.weights.setflags(write=False)
    return found


@st.cache_resource(max_entries=16, show_spinner=False)
def head_vectors(key: str, text: str, pair: str | None, head: Head) -> HeadVectors:
    """Return the queries and keys of one head on a text, by pieces; shared, never changed."""
    from analysis.lenses import head_vectors

    return head_vectors(_one_thread(key), text, pair, head)


@st.cache_resource(max_entries=4, show_spinner=False)
def answer(key: str, text: str, pair: str | None, off: bytes, shape: tuple[int, int]) -> Answer:
    """Return what a model says of a text with heads switched off; shared, never changed.

    off: the mask [layer, head] of ``shape``, as its bytes
    """
    from analysis.live import answer
    from analysis.models import Model

    model = _one_thread(key)
    assert isinstance(model, Model)
    mask = np.frombuffer(off, dtype=bool).reshape(shape)
    found = answer(model, text, pair, mask if mask.any() else None)
    for one in found.maps:
        one.weights.setflags(write=False)
    return found


@st.cache_data(max_entries=32, show_spinner=False)
def moved(key: str, text: str, pair: str | None, off: bytes, shape: tuple[int, int], side: int) -> np.ndarray:
    """Return [layer, head] how far the attention of each head moved in one of the texts of `answer`."""
    from analysis.answers import moved

    before, after = (answer(key, text, pair, mask, shape) for mask in (bytes(len(off)), off))
    return moved(before.maps[side], after.maps[side])


@st.cache_data(max_entries=16, show_spinner=False)
def effects(key: str, text: str, pair: str | None) -> np.ndarray:
    """Return [layer, head] how the main number that a model says of a text changes with that head alone off."""
    from analysis.live import answer, effects
    from analysis.models import Model

    model = _one_thread(key)
    assert isinstance(model, Model)
    return effects(model, text, pair, answer(model, text, pair))


@st.cache_resource(show_spinner=False)
def _courses() -> dict[int, tuple[Progress, ...]]:
    """The trainings of the Learn pages so far, by their seeds; the last of each holds the network."""
    return {}


def course(seed: int) -> tuple[Progress, ...] | None:
    """Return how the training from ``seed`` went, or None where it has not been trained here."""
    with _OPENED_LOCK:
        return _courses().get(seed)


def keep_course(seed: int, found: tuple[Progress, ...]) -> None:
    """Keep a training for all sessions; the oldest goes where there are many."""
    with _OPENED_LOCK:
        _courses()[seed] = found
        while len(_courses()) > MOST_COURSES:
            _courses().pop(next(iter(_courses())))


@st.cache_resource(max_entries=MOST_COURSES, show_spinner=False)
def toy_pruned(seed: int) -> Pruned:
    """Return what the network trained from ``seed`` loses without some of its heads; shared, never changed."""
    from analysis.toy_pruning import prune

    found = course(seed)
    assert found is not None
    assert found[-1].network is not None
    return prune(found[-1].network)


@st.cache_resource(max_entries=16, show_spinner=False)
def senses(key: str, word: str, texts: tuple[str, str]) -> Senses:
    """Return how alike the vectors of a word are in two texts; shared, never changed."""
    from analysis.models import Model
    from analysis.senses import senses

    model = _one_thread(key)
    assert isinstance(model, Model)
    return senses(model, word, texts)


@st.cache_data(max_entries=64, show_spinner=False)
def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    """Return Spearman's rank correlation over heads, and the ends of its 95% interval by a bootstrap over them."""
    from scipy.stats import bootstrap, spearmanr

    ends = bootstrap(
        (x, y),
        lambda a, b: spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(spearmanr(x, y).statistic), float(ends.low), float(ends.high)


def _capture(key: str, text: str, pair: str | None) -> AttentionMaps:
    from analysis.capture import capture

    return capture(_one_thread(key), text, pair)


def _one_thread(key: str) -> Model | Toy:
    """Return the source ``key`` for a pass in this thread of a session.

    A small pass gains nothing from a second thread and loses much while the browser is busy. Threads of
    sessions come and go, and torch counts per thread, so it is said each time.
    """
    opened = source(*parts_of(key))
    import torch

    torch.set_num_threads(1)
    return opened


@st.cache_data(max_entries=64, show_spinner=False)
def entropies(
    key: str, text: str, pair: str | None, units: Units, specials: Specials
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean entropy of every head in bits and normalised, each [layer, head]."""
    from analysis.statistics import head_entropy

    return head_entropy(maps(key, text, pair, units), specials)


@st.cache_data(max_entries=16, show_spinner=False)
def tiles(key: str, text: str, pair: str | None, units: Units, specials: Specials) -> np.ndarray:
    """Return [layer, head, query, key] every map, pooled to at most 48 cells a side: roots as 0 to 254.

    255 for heads that were removed.
    """
    view = with_specials(maps(key, text, pair, units), specials)
    roots = np.rint(np.sqrt(pool(view.weights, TILE)) * 254)
    return np.nan_to_num(roots, nan=NOTHING).astype(np.uint8)
