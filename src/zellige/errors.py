"""What can go wrong, as exceptions that carry their facts.

Every class derives from the built-in exception that a caller would expect, so `except KeyError`,
`except ValueError` and so on keep working. The facts given as keyword arguments become attributes.
At the end are the names under which zarr-python has the same things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import Repr
from typing import Any, NoReturn


class ZelligeError(Exception):
    """Base of all errors raised by zellige; keyword facts become attributes."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(_shortened(message))
        self.__dict__.update(facts)

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return str(self.args[0]) if self.args else ""


_LONGEST, _LONGEST_NAME = 4000, 100


def _shortened(message: str) -> str:
    """Return a message that repeats a very long name or list, without its middle."""
    if len(message) <= _LONGEST:
        return message
    half = _LONGEST // 2
    return f"{message[:half]} … {len(message) - 2 * half} characters … {message[-half:]}"


def hint(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the known one that is close to it, or all of them."""
    from difflib import get_close_matches  # only when there is something to say

    close = get_close_matches(name, known, 1) if len(name) <= _LONGEST_NAME else []
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def as_flag(value: object, name: str) -> bool:
    """Return what an argument that is True or False says; other words are refused, whichever way they would count."""
    if value is True or value is False:
        return value
    raise TypeError(f"{name}={value!r} must be True or False")


_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 80


def shown(value: object) -> str:
    """Return a value for a message; not all of it, if it is long or deep."""
    return _REPR.repr(value)


# -- metadata -------------------------------------------------------------------------------------


def fail(field: str, expected: str, found: object) -> NoReturn:
    """Raise a `MetadataError` with the path of a field, what it must be, and what is there."""
    raise MetadataError(f"{field or 'the metadata'} must be {expected}, found {shown(found)}", field=field)


class MetadataError(ZelligeError, ValueError):
    """Metadata breaks the rules; `field` is the path of the offending part."""

    field: str


class UnfinishedError(MetadataError):
    """There is no node yet: an operation that makes one was stopped, or is under way."""


class UnknownCodecError(MetadataError):
    """Metadata or an argument names a codec that is not known here."""


class UnknownDataTypeError(MetadataError):
    """Metadata or an argument names a data type that is not known here."""

    field: str = "data_type"


class StaleMetadataError(ZelligeError, ValueError):
    """Consolidated metadata differs from the nodes; `differences` says where."""

    differences: Sequence[str]


# -- arguments ------------------------------------------------------------------------------------


class ChunkShapeError(ZelligeError, ValueError):
    """`chunks=` does not fit the shape; `axis` says where, when it is one axis."""

    axis: int | None


class LossyCastError(ZelligeError, ValueError, OverflowError):
    """A value that an array's type cannot hold; `index` says where it is, `fact` is the message without the remedy."""

    index: tuple[int, ...]
    fact: str


class MaskedValueError(ZelligeError, ValueError):
    """A masked element, which an array cannot hold; `index` says where it is, when it is in an array."""

    index: tuple[int, ...]


class RectilinearChunksError(ZelligeError, NotImplementedError, AttributeError):
    """`chunks` was asked of an array whose chunks differ; also an AttributeError for `getattr` and `hasattr`."""


class BoundsCheckError(ZelligeError, IndexError):
    """An index lies outside the array."""


class VindexInvalidSelectionError(ZelligeError, IndexError):
    """`vindex` takes one integer array per axis, or one mask of the array's shape."""


class FieldNotFoundError(ZelligeError, KeyError, IndexError, ValueError):
    """A struct has no field of this name; numpy raises a ValueError or a KeyError, others an IndexError."""

    fields: tuple[str, ...]


class BroadcastError(ZelligeError, ValueError):
    """A value does not broadcast to the shape of the selection."""


# -- nodes ----------------------------------------------------------------------------------------


class NodeNotFoundError(ZelligeError, FileNotFoundError, KeyError, ValueError):
    """There is no node at this place."""


class ArrayNotFoundError(NodeNotFoundError):
    """There is no array at this place."""


class GroupNotFoundError(NodeNotFoundError):
    """There is no group at this place."""


class ContainsArrayError(ZelligeError, FileExistsError, ValueError):
    """There is an array at this place already."""


class ContainsGroupError(ZelligeError, FileExistsError, ValueError):
    """There is a group at this place already."""


class ContainsArrayAndGroupError(ZelligeError, FileExistsError, ValueError):
    """There are documents of an array and of a group at one place; only one of them may be there."""


class NotANodeError(ZelligeError, FileExistsError, ValueError):
    """Something that is not a node is in the way, and is not removed."""


class DatasetError(ZelligeError, ValueError):
    """The arrays of a group disagree about the length of a dimension; `lengths` has their names by length."""

    dimension: str
    lengths: dict[int, list[str]]


class NodeNameError(ZelligeError, ValueError):
    """A node's name breaks the rules of the format."""


# -- stores ---------------------------------------------------------------------------------------


class StoreKeyError(ZelligeError, ValueError):
    """A key that could leave the store's root, or that no store may hold."""


class UnsafeLinkError(StoreKeyError):
    """A symbolic link leads out of a store that stays within its root, or nowhere."""


class ReadOnlyError(ZelligeError, PermissionError, ValueError):
    """A write was tried on a store or an array opened for reading only."""


class ShortReadError(ZelligeError, EOFError):
    """A byte range reaches beyond the end of the stored value, of `size` bytes."""

    size: int


class BadArchiveError(ZelligeError, ValueError):
    """A zip archive is cut short or damaged, or holds names that no store may; `key` is the entry, if it is one."""

    key: str


class ConflictError(ZelligeError, OSError):
    """Another writer kept changing the same key; nothing was written."""


class CopyError(ZelligeError, OSError):
    """A key is in the way, or what arrived is not what was sent; `key` says where."""

    key: str


class RemoteError(ZelligeError, OSError):
    """A request to a server failed, for another reason than a missing key; `key` says which."""

    key: str


class AccessDeniedError(RemoteError, PermissionError):
    """A server refused access; that a key is missing is not known."""


class ListingNotSupportedError(ZelligeError, OSError):
    """A store cannot say which keys it has, as a web server."""


# -- chunks ---------------------------------------------------------------------------------------


class CodecError(ZelligeError, ValueError):
    """Bytes cannot be decoded, or a chunk cannot be encoded."""


class UnsupportedCodecError(CodecError):
    """The bytes may be sound, but what they need to be decoded is not installed here."""


class PickleCodecDisabledError(UnsupportedCodecError, MetadataError):
    """The elements are pickles, which are never decoded here: to decode one is to run the code in it."""


class EncodeError(CodecError):
    """A codec refuses the values of a chunk; carries `array`, `coords`, `key`, in a shard `inner`, and the cause."""

    array: str
    coords: tuple[int, ...]
    key: str
    inner: tuple[int, ...] | None


class CorruptChunkError(CodecError):
    """A stored chunk is damaged; carries `array`, `coords`, `key`, in a shard `inner`, and the cause."""

    array: str
    coords: tuple[int, ...]
    key: str
    inner: tuple[int, ...] | None


class ChunkNotFoundError(ZelligeError, KeyError, ValueError):
    """A chunk is missing, and the setting `array.read_missing_chunks` is off."""

    coords: tuple[int, ...]
    key: str


# -- warnings -------------------------------------------------------------------------------------


class ZelligeWarning(UserWarning):
    """Base of the warnings about stored data."""


class UnfinishedWarning(ZelligeWarning):
    """An array is opened whose values are not all there: an operation that fills it was stopped, or is under way."""


class BrokenNodeWarning(ZelligeWarning):
    """A node could not be read; its siblings can."""


class StaleMetadataWarning(ZelligeWarning):
    """Arrays have grown beyond what consolidated metadata says: readers have not seen what is behind that."""


class CompatibilityWarning(ZelligeWarning):
    """Something was written that other libraries open only with a setting, or not at all."""

    @classmethod
    def of_rectilinear(cls, group: str, members: Sequence[str]) -> CompatibilityWarning:
        """Return the warning that consolidated metadata of a group holds members with rectilinear chunks."""
        more = f" and {len(members) - 5} more" if len(members) > 5 else ""
        return cls(
            f"the consolidated metadata of {group!r} holds arrays with rectilinear chunks "
            f"({', '.join(map(repr, members[:5]))}{more}), so that zarr-python does not open the group by default. It "
            "needs version 3.4 and zarr.config.set({'array.rectilinear_chunks': True}). Without them, "
            "zarr.open_group(…, use_consolidated=False) opens the group, and its other members by their names"
        )


class CredentialsWarning(ZelligeWarning):
    """A pickle holds credentials."""


class RangesIgnoredWarning(ZelligeWarning):
    """A server sends whole values where only parts were requested."""


def as_mapping(given: Any, name: str) -> Mapping[Any, Any]:
    """Return an argument that must be a mapping, such as a dict; its name is for the message."""
    if not isinstance(given, Mapping):  # the value is not said, since it may be secret
        raise TypeError(f"{name} must be a mapping, such as a dict, found {type(given).__name__}")
    return given


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this package that has called it."""
    import sys  # only when there is something to say
    import warnings

    here = __file__.rpartition("/")[0]
    frame, level = sys._getframe(1), 3
    while frame.f_back is not None and frame.f_back.f_code.co_filename.startswith(here):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


# -- the same, as zarr-python calls it ------------------------------------------------------------

BaseZarrError = ZelligeError
MetadataValidationError = MetadataError
NodeTypeValidationError = MetadataError
DataTypeValidationError = MetadataError
ArrayIndexError = BoundsCheckError
ZarrUserWarning = ZelligeWarning


class NegativeStepError(ZelligeError, IndexError):
    """Never raised here: slices may have negative steps, as in numpy."""


class ZarrFutureWarning(FutureWarning):
    """Something will change, which users should know."""


class UnstableSpecificationWarning(ZarrFutureWarning):
    """Something that is stored is not part of the specification, or may change there."""


class ZarrDeprecationWarning(DeprecationWarning):
    """Something will be removed, which developers should know."""


class ZarrRuntimeWarning(RuntimeWarning):
    """Something is dubious at run time."""
