"""A network as an ONNX file, with its pooling or its task's head inside, checked against torch.

Needs the packages of ``requirements-onnx.txt``. Batch and length stay free; every input that the family reads is an
input of the file.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from analysis.capture import encode, input_names, pad
from analysis.messages import HeadroomError, first_line
from analysis.models import Model
from analysis.problems import embed
from analysis.tokens import Bools

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
TEXTS = ("The cat sat on the mat.", "A man plays a guitar while it rains outside.", "It is.")
CLOSE = 1e-4  # of the largest output


class OnnxError(HeadroomError):
    """An export that is not possible here, or whose file does not say what the network says."""


class Said(torch.nn.Module):
    """What the file holds: the network and what makes one output of it."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = copy.deepcopy(model.network)
        # Without heads in a layer the fused kernel has nothing to run on; plain products do.
        self.network.set_attn_implementation("eager" if _has_empty_layer(model.gone) else "sdpa")
        self.embeds = model.readout.kind == "embedding"

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> Tensor:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        outputs = self.network(**inputs)
        return embed(outputs, inputs, ()) if self.embeds else outputs.logits


def _has_empty_layer(gone: Bools) -> bool:
    return bool(gone.all(axis=1).any())


def check_packages() -> None:
    """Raise OnnxError with what to install where a package is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise OnnxError(
            "An ONNX file needs {missing}. Run: pip install -r requirements-onnx.txt",
            missing=", ".join(missing),
        )


def export(model: Model, path: Path) -> float:
    """Write the network as ONNX and return the largest difference from torch, as a share of the largest output.

    Output: "sentence_embedding" [batch, model] of length 1 (mean over the tokens) for a model without a task's head, else
    "logits". Raises OnnxError where packages are missing, or where the file says something else than the network.
    """
    check_packages()
    said = Said(model).eval()
    inputs = _inputs(model, TEXTS[:2])
    batch, token = torch.export.Dim("batch"), torch.export.Dim("token", max=model.geometry.max_tokens)
    shapes = {name: {0: batch, 1: token} for name in inputs}
    part = path.with_name(path.name + ".part")
    try:
        with warnings.catch_warnings(), torch.no_grad(), _quiet():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                said,
                (),
                str(part),
                kwargs=inputs,
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=list(inputs),
                output_names=["sentence_embedding" if said.embeds else "logits"],
                external_data=False,
                verbose=False,
            )
        apart = difference(model, said, part)
        part.replace(path)
    except HeadroomError:
        part.unlink(missing_ok=True)
        raise
    except Exception as error:  # the exporter can fail in any way
        part.unlink(missing_ok=True)
        raise OnnxError("The ONNX file cannot be written: {reason}.", reason=first_line(error)) from error
    return apart


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes about packages that it would like off the screen."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def difference(model: Model, said: torch.nn.Module, path: Path) -> float:
    """Return how far an ONNX file is from the network on other batches and lengths. Raises OnnxError above 1e-4."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for texts in (TEXTS[:1], TEXTS[1:], TEXTS):
        inputs = _inputs(model, texts)
        with torch.no_grad():
            expected = said(**inputs).numpy()
        (found,) = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        real = (
            np.ones(expected.shape[:2], bool)
            if expected.ndim == 2
            else inputs["attention_mask"].bool().numpy()
        )
        apart = float(np.abs(found - expected)[real].max() / np.abs(expected[real]).max())
        worst = float(np.maximum(worst, apart))  # NaN stays
    if not worst <= CLOSE:
        raise OnnxError(
            "The ONNX file differs from the network by {apart:.1e} of the largest output: it was not kept.",
            apart=worst,
        )
    return worst


def _inputs(model: Model, texts: Sequence[str]) -> dict[str, Tensor]:
    padded = pad(model, [encode(model, text).inputs for text in texts])
    return {name: padded[name].cpu() for name in input_names(model) if name in padded}


def to_bytes(model: Model) -> bytes:
    """Return the ONNX file's bytes. Raises as `export`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(model, path)
        return path.read_bytes()
