"""A folder of object code, named by keys of everything that could change it.

A file is written under a temporary name and then renamed, so that no reader ever sees a part of one; it starts with
a digest of its key and the rest, so that a file that is damaged or belongs elsewhere is noticed and ignored. When the
folder cannot be written, one warning is given, and callers compile anew in each process. Does not know what is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import warnings
from pathlib import Path

from tilegrad.config import config

_MAGIC = b"tilegrad-object-2\n"
_HEAD = len(_MAGIC) + 32
_warned: set[Path] = set()


def get(key: str) -> bytes | None:
    """The object stored under a key, or None."""
    if not config.cache:
        return None
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    head, body = data[:_HEAD], data[_HEAD:]
    return body if head == _head(key, body) else None


def put(key: str, body: bytes) -> None:
    """Store an object."""
    if not config.cache:
        return
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_head(key, body) + body)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        _warn_once(error)


def _head(key: str, body: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(key.encode() + body).digest()


def _path(key: str) -> Path:
    return Path(config.cache_dir) / key[:2] / f"{key[2:]}.o"


def _warn_once(error: OSError) -> None:
    folder = Path(config.cache_dir)
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"tilegrad cannot write its cache folder {folder} ({error.strerror}); kernels are compiled anew in every "
            "process. Set TILEGRAD_CACHE_DIR to a folder that can be written, or TILEGRAD_CACHE=0 to silence this.",
            RuntimeWarning,
            stacklevel=2,
        )
