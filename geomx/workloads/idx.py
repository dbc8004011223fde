"""Reader for MNIST's IDX files; damaged or inconsistent files are reported by name.

An IDX file is a big-endian header (magic number, then one 32-bit extent per dimension) followed by
the data (http://yann.lecun.com/exdb/mnist/). Files may be plain or gzipped.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from geomx.errors import ConfigError
from geomx.workloads.images import SIDE, Images

IMAGES_MAGIC = 0x803
LABELS_MAGIC = 0x801
CLASSES = 10
_CHUNK = 1 << 20


def training_samples(folder: str) -> int:
    """Return the size of the training set in `folder`, from the headers of its files.

    Args:
        folder: Folder with the four files.

    Raises:
        ConfigError: A file is missing, is no IDX file, or does not match the others.
    """
    return _counts(folder)[0]


def load_idx(folder: str) -> Images:
    """Read training and held-out ("t10k") images and labels.

    Args:
        folder: Folder with the four files.

    Raises:
        ConfigError: A file is missing, damaged, or does not match the others; the message names it.
    """
    _counts(folder)
    training, held_out = (_read(folder, part, "images", IMAGES_MAGIC) for part in ("train", "t10k"))
    labels = [_read(folder, part, "labels", LABELS_MAGIC) for part in ("train", "t10k")]
    for part, values in zip(("train", "t10k"), labels, strict=True):
        if values.max() >= CLASSES:
            raise _refusal(
                _find(folder, part, "labels"), f"label {values.max()}, expected 0 to {CLASSES - 1}"
            )
    return Images(training, labels[0], held_out, labels[1])


def load_part(folder: str, part: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read the images and labels of one part.

    Args:
        folder: Folder with the files.
        part: ``train`` or ``t10k``.

    Returns:
        Images, uint8 (samples, 28, 28), and labels, uint8 (samples,).

    Raises:
        ConfigError: As `load_idx`.
    """
    images = _read(folder, part, "images", IMAGES_MAGIC)
    labels = _read(folder, part, "labels", LABELS_MAGIC)
    if len(images) != len(labels):
        raise _refusal(
            _find(folder, part, "labels"), f"{len(labels)} labels for {len(images)} images"
        )
    return images, labels


def _counts(folder: str) -> tuple[int, int]:
    """Return the numbers of training and held-out samples, after comparing the headers."""
    counts = []
    for part in ("train", "t10k"):
        images, labels = (
            _header_of(folder, part, "images", IMAGES_MAGIC),
            _header_of(folder, part, "labels", LABELS_MAGIC),
        )
        if images[1:] != (SIDE, SIDE):
            raise _refusal(
                _find(folder, part, "images"),
                f"images of {images[1]}x{images[2]}, expected {SIDE}x{SIDE}",
            )
        if images[0] != labels[0] or images[0] == 0:
            raise _refusal(
                _find(folder, part, "labels"), f"{labels[0]} labels for {images[0]} images"
            )
        counts.append(images[0])
    return counts[0], counts[1]


def _find(folder: str, part: str, what: str) -> Path:
    """Return the path of e.g. ``train-images-idx3-ubyte``, with or without ``.gz``."""
    if not folder:
        raise ConfigError("workload.path", "", "name the folder that holds the IDX files")
    if not Path(folder).is_dir():
        raise ConfigError("workload.path", folder, "is not a folder")
    kind = "idx3" if what == "images" else "idx1"
    name = f"{part}-{what}-{kind}-ubyte"
    for candidate in (name, f"{name}.gz", f"{part}-{what}.{kind}-ubyte"):
        if (Path(folder) / candidate).is_file():
            return Path(folder) / candidate
    raise ConfigError("workload.path", folder, f"has neither {name} nor {name}.gz")


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _header_of(folder: str, part: str, what: str, magic: int) -> tuple[int, ...]:
    """Return the extents in the header of a file."""
    path = _find(folder, part, what)
    try:
        with _open(path) as file:
            return _header(path, file, magic)
    except (OSError, EOFError, zlib.error) as error:
        raise _refusal(path, f"cannot be read ({error})") from error


def _read(folder: str, part: str, what: str, magic: int) -> NDArray[np.uint8]:
    """Return the content of a file in the shape of its header.

    The file is read in pieces, so that a header with absurd extents does not allocate memory.
    """
    path = _find(folder, part, what)
    data = bytearray()
    try:
        with _open(path) as file:
            shape = _header(path, file, magic)
            expected = math.prod(shape)
            while len(data) <= expected and (piece := file.read(_CHUNK)):
                data += piece
    except (OSError, EOFError, zlib.error) as error:
        raise _refusal(path, f"cannot be read ({error})") from error
    if len(data) != expected:
        found = f"{len(data)}" if len(data) < expected else "more"
        raise _refusal(path, f"its header promises {expected} bytes of data, it has {found}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _header(path: Path, file: IO[bytes], magic: int) -> tuple[int, ...]:
    """Read the header of `file`, which must start with `magic`; return the extents."""
    dimensions = magic & 0xFF
    head = file.read(4 + 4 * dimensions)
    if len(head) < 4 + 4 * dimensions:
        raise _refusal(path, f"ends within its header ({len(head)} bytes)")
    found, *extents = struct.unpack(f">{1 + dimensions}I", head)
    if found != magic:
        raise _refusal(path, f"magic number 0x{found:08x}, expected 0x{magic:08x}")
    return tuple(extents)


def _refusal(path: Path, what: str) -> ConfigError:
    return ConfigError("workload.path", path.parent, f"{path.name}: {what}")
