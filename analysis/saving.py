"""A smaller network as a folder that opens anywhere in Headroom, with a card that says what it is.

The folder is written whole beside its place and then renamed: a kill or a full disk leaves nothing that loads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from transformers import PreTrainedModel

from analysis.maps import write_heads
from analysis.messages import HeadroomError, first_line
from analysis.models import Model, measure
from analysis.surgery import Sizes, sizes, without, zeroed
from analysis.tokens import Bools

CARD = "README.md"


class SaveError(HeadroomError):
    """A folder that cannot be written."""


def smaller(model: Model, heads: Bools) -> Model:
    """Return the model without these heads [layer, head]; the one that is given is not touched."""
    network = without(model.network, heads)
    return replace(model, network=network, geometry=measure(network))


def save_model(
    model: Model,
    folder: Path,
    *,
    whole: Model | None = None,
    numbers: Mapping[str, str] | None = None,
    full_shape: Bools | None = None,
) -> None:
    """Save a model with its tokenizer and a card into a new or empty folder.

    whole: the model that it was made from, for what the card says
    numbers: further lines of the card, by their name
    full_shape: heads [layer, head] that are kept as zeros instead of being removed: any program loads that

    Raises SaveError where the folder holds something already, or cannot be written.
    """
    network = model.network if full_shape is None else zeroed(model.network, full_shape)

    def write(part: Path) -> None:
        network.save_pretrained(part)
        with model.tokenizing:
            model.tokenizer.save_pretrained(part)
        text = card(model, network, whole, numbers or {}, full_shape)
        (part / CARD).write_text(text, encoding="utf-8")

    write_folder(folder, write)


def write_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a folder beside ``folder``, and put it there in one step. Raises SaveError."""
    check_empty(folder)
    folder = folder.resolve()  # so that it has a name to stand beside
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        if folder.exists():
            folder.rmdir()  # it is empty
        part.rename(folder)
    except Exception as error:  # a full disk reaches us as an error of whoever was writing
        with suppress(OSError):
            shutil.rmtree(part, ignore_errors=True)
        raise _cannot_be_written(folder, error) from error


def check_empty(folder: Path) -> None:
    """Raise SaveError unless a folder is new or empty."""
    try:
        is_free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    except OSError as error:
        raise _cannot_be_written(folder, error) from error
    if not is_free:
        raise SaveError("{folder} is not empty. Name another folder.", folder=str(folder))


def _cannot_be_written(folder: Path, error: Exception) -> SaveError:
    return SaveError(
        "{folder} cannot be written: {reason}. Nothing was left behind; choose another place.",
        folder=str(folder),
        reason=first_line(error),
    )


def card(
    model: Model,
    network: PreTrainedModel,
    whole: Model | None,
    numbers: Mapping[str, str],
    full_shape: Bools | None,
) -> str:
    """Return what a person should know of a smaller model, in Markdown."""
    gone = model.gone if full_shape is None else full_shape | model.gone
    after = sizes(network)
    lines = [f"# {model.name} without {int(gone.sum())} of {gone.size} attention heads", ""]
    if full_shape is None:
        lines += [
            "The heads are removed for good: their rows of W_Q, W_K, W_V and their columns of W_O. The heads that are",
            "left keep their numbers; config.json names those that are gone as `pruned_heads`.",
            "",
            "Load it with Headroom:",
            "",
            "    from analysis.models import open_model",
            '    model = open_model("this folder")',
            "    model.network, model.tokenizer",
            "",
            "transformers 5 alone refuses it (it no longer knows `pruned_heads`); transformers 4 opens it, unless a layer",
            "has lost all of its heads.",
        ]
    else:
        lines += [
            "The heads add nothing: their columns of W_O are zero. Any program loads this with `from_pretrained`; it is as",
            "large and as slow as the whole model.",
        ]
    lines += ["", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in _size_rows(after, whole)]
    lines += [f"| {name} | {value} |" for name, value in numbers.items()]
    lines += [f"| removed heads (layer.head) | {write_heads(gone)} |", ""]
    return "\n".join(lines)


def _size_rows(after: Sizes, whole: Model | None) -> list[tuple[str, str]]:
    rows = []
    before = None if whole is None else sizes(whole.network)
    for name, label in (
        ("parameters", "parameters"),
        ("bytes", "bytes"),
        ("products", "multiply-adds at 64 tokens"),
    ):
        now = getattr(after, name)
        if before is None:
            rows.append((label, f"{now:,}"))
        else:
            was = getattr(before, name)
            rows.append((label, f"{now:,} of {was:,} ({now / was:.1%})"))
    return rows


def heads_of_curve(path: Path, share: float) -> str:
    """Return the heads that a curve (`python -m analysis prune`) has removed at a share, as layer.head.

    The step with the largest share that is not above the one asked for, of the first order and seed in the file.
    Raises SaveError for a file that is no curve.
    """
    import pandas as pd

    try:
        if path.suffix.lower() == ".parquet":
            table = pd.read_parquet(path)
        else:
            table = pd.read_csv(path, dtype={"heads": str}, keep_default_na=False)
        first = table[(table["order"] == table["order"].iloc[0]) & (table["seed"] == table["seed"].iloc[0])]
        there = first[first["share"].astype(float) <= share + 1e-9]
        heads = str(there.iloc[-1]["heads"])
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SaveError(
            "{path} is no curve of a pruning run: {reason}. Give the file that prune --out wrote.",
            path=str(path),
            reason=first_line(error),
        ) from error
    if not heads:
        raise SaveError(
            "At the share {share} the curve in {path} has removed nothing. Ask for a larger --share.",
            share=share,
            path=str(path),
        )
    return heads
