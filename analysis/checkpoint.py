"""What a model's folder says of itself, read before any weight: is it one that can be opened rightly?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from analysis.messages import ModelError

SUPPORTED = {
    "bert": "BERT",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-R",
    "camembert": "CamemBERT",
    "electra": "ELECTRA",
    "distilbert": "DistilBERT",
    "albert": "ALBERT",
    "modernbert": "ModernBERT",
}
TOKENIZER_FILES = (
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
)  # fmt: skip
PICKLED = (
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.bin",
    "tf_model.h5",
    "flax_model.msgpack",
)

HeadKind = Literal["classification", "masked", "none", "other"]


@dataclass(frozen=True)
class Checkpoint:
    """A folder that can be opened: where it is, what it is called, and the head it was saved with.

    pruned: by layer, the heads that were removed before it was saved
    """

    folder: Path
    name: str
    architecture: str
    head: HeadKind
    pruned: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def read_checkpoint(folder: Path, name: str) -> Checkpoint:
    """Read the folder's config and file names; raise ModelError for everything that must be refused."""
    config = _read_config(folder, name)
    family = str(config.get("model_type", ""))
    named = config.get("architectures") or [""]
    architecture = str(named if isinstance(named, str) else named[0] or "")
    _check_family(name, family, architecture, config)
    _check_files(folder, name)
    pruned = _pruned_heads(name, family, config)
    return Checkpoint(folder, name, architecture, _head_kind(architecture, family), pruned)


def _read_config(folder: Path, name: str) -> dict:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            "{name} has no config.json: it is not a saved model. Choose the folder that save_pretrained wrote.",
            name=name,
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(
            "The config.json of {name} is not JSON ({reason}). Save the model again.", name=name, reason=error
        ) from error
    if not isinstance(config, dict):
        raise ModelError(
            "The config.json of {name} does not describe a model. Save the model again.", name=name
        )
    return config


def _check_family(name: str, family: str, architecture: str, config: dict) -> None:
    if not family:
        raise ModelError(
            "The config.json of {name} names no model_type. Save the model again with save_pretrained.",
            name=name,
        )
    if family not in SUPPORTED:
        raise ModelError(
            "{name} is of the kind {family}, whose heads cannot be seen and switched off here. "
            "Supported: {supported}.",
            name=name,
            family=architecture or family,
            supported=", ".join(SUPPORTED.values()),
        )
    sizes = ("num_hidden_layers", "n_layers", "num_attention_heads", "n_heads")
    empty = [
        size for size in sizes if size in config and not (isinstance(config[size], int) and config[size] > 0)
    ]
    if empty:
        raise ModelError(
            "{name} has {size} {value} in its config.json: there are no heads to look at. It must be 1 or more.",
            name=name,
            size=empty[0],
            value=config[empty[0]],
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise ModelError(
            "{name} is set up as a decoder. Headroom reads encoders: choose one without is_decoder.",
            name=name,
        )


def _pruned_heads(name: str, family: str, config: dict) -> dict[int, tuple[int, ...]]:
    """Return which heads were removed before the model was saved, by layer. Raises ModelError for what cannot be."""
    said = config.get("pruned_heads") or {}
    layers, heads = (
        next((config[key] for key in keys if key in config), 12)
        for keys in (("num_hidden_layers", "n_layers"), ("num_attention_heads", "n_heads"))
    )
    try:
        found = {int(layer): tuple(sorted({int(head) for head in gone})) for layer, gone in said.items()}
        whole = all(
            0 <= layer < layers and all(0 <= h < heads for h in gone) for layer, gone in found.items()
        )
    except (AttributeError, TypeError, ValueError):
        whole = False
    if not whole or (family == "albert" and any(found.values())):
        raise ModelError(
            "{name} names removed heads that it cannot have had ({said}): with {layers} layers x {heads} heads. Save the "
            "model again, or open the one it was pruned from.",
            name=name,
            said=str(said)[:80],
            layers=layers,
            heads=heads,
        )
    return {layer: gone for layer, gone in found.items() if gone}


def _check_files(folder: Path, name: str) -> None:
    files = {path.name for path in folder.iterdir()}
    if not any(file.endswith((".safetensors", ".safetensors.index.json")) for file in files):
        pickled = sorted(files.intersection(PICKLED))
        if pickled:
            raise ModelError(
                "{name} has its weights only as {file}, which can run code when it is opened. "
                "Convert it to safetensors (save_pretrained does).",
                name=name,
                file=pickled[0],
            )
        raise ModelError(
            "{name} has no weights as safetensors (pickled ones can run code and are not opened). "
            "Save or convert them so.",
            name=name,
        )
    if not files.intersection(TOKENIZER_FILES):
        raise ModelError(
            "{name} has no tokenizer. Save the model's own beside it (tokenizer.save_pretrained).", name=name
        )


def _head_kind(architecture: str, family: str) -> HeadKind:
    if architecture.endswith("ForSequenceClassification"):
        return "classification"
    if architecture.endswith("ForMaskedLM"):
        return "masked"
    if architecture.endswith("ForPreTraining") and family in ("bert", "albert"):
        return "masked"  # holds the masked-word head beside one for the next sentence
    return "none" if not architecture or architecture.endswith("Model") else "other"
