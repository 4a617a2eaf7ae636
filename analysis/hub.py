"""Fetch a model's files from the Hugging Face hub, and say in one sentence why it could not be."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from analysis.messages import ModelError, first_line

# Configuration, vocabulary and safe weights at the top of the repository: no code, no pickles, no copies.
WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]
UNWANTED = ["*/*"]
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def looks_like_folder(source: str) -> bool:
    """Whether ``source`` is written as a path, not as the id of a model on the hub."""
    return source.startswith((".", "/", "~")) or "\\" in source or not HUB_ID.fullmatch(source)


def download(source: str, revision: str | None = None) -> Path:
    """Return the local folder of the hub model ``source``, downloading what is not there yet.

    Raises ModelError: unknown, gated, revision unknown, no network and not downloaded before.
    """
    try:
        return Path(
            snapshot_download(source, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED)
        )
    except GatedRepoError as error:
        raise ModelError(
            "{source} is gated: accept its terms on the hub and log in with `hf auth login`.", source=source
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(
            "{source} has no revision {revision}. Leave it out for the newest.",
            source=source,
            revision=revision,
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            "The hub has no model {source}, or it is private. Check the name (owner/name), or log in.",
            source=source,
        ) from error
    except HFValidationError as error:
        raise ModelError(
            "{source} is neither a folder here nor a name the hub allows. Check it.", source=source
        ) from error
    except Exception as error:  # a connection can fail in any way, and none of them may reach the reader raw
        raise ModelError(
            "{source} is not on this machine and cannot be fetched from the hub ({reason}). Connect, or choose "
            "the bundled model or a local folder.",
            source=source,
            reason=first_line(error),
        ) from error
