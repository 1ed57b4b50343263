"""The names that scripts written for zarr-python import, and that they mean what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zellige
import zellige.dtype
import zellige.storage
from zellige import dtypes, errors

# -- zellige.errors -------------------------------------------------------------------------------

ERRORS: dict[str, type[Exception]] = {
    "ArrayIndexError": IndexError,
    "ArrayNotFoundError": FileNotFoundError,
    "BaseZarrError": Exception,
    "BoundsCheckError": IndexError,
    "ChunkNotFoundError": KeyError,
    "ContainsArrayAndGroupError": ValueError,
    "ContainsArrayError": ValueError,
    "ContainsGroupError": ValueError,
    "DataTypeValidationError": ValueError,
    "GroupNotFoundError": FileNotFoundError,
    "MetadataValidationError": ValueError,
    "NegativeStepError": IndexError,
    "NodeNotFoundError": FileNotFoundError,
    "NodeTypeValidationError": ValueError,
    "PickleCodecDisabledError": ValueError,
    "UnknownCodecError": ValueError,
    "VindexInvalidSelectionError": IndexError,
}

WARNINGS: dict[str, type[Warning]] = {
    "UnstableSpecificationWarning": FutureWarning,
    "ZarrDeprecationWarning": DeprecationWarning,
    "ZarrFutureWarning": FutureWarning,
    "ZarrRuntimeWarning": RuntimeWarning,
    "ZarrUserWarning": UserWarning,
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_other_names_and_the_builtin_bases(name):
    found = getattr(errors, name)
    assert issubclass(found, ERRORS[name])
    assert issubclass(found, errors.ZelligeError)
    assert not issubclass(found, Warning)


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings_have_the_other_names_and_the_builtin_bases(name):
    assert issubclass(getattr(errors, name), WARNINGS[name])


def test_errors_mean_the_same_under_both_names():
    with pytest.raises(errors.MetadataValidationError):
        zellige.dtype.parse_dtype("int17")
    with pytest.raises(errors.DataTypeValidationError):
        zellige.dtype.parse_dtype("r7")
    assert issubclass(errors.GroupNotFoundError, errors.NodeNotFoundError)
    assert issubclass(errors.ArrayNotFoundError, errors.NodeNotFoundError)
    assert issubclass(errors.BrokenNodeWarning, errors.ZelligeWarning)
    assert not issubclass(errors.BoundsCheckError, errors.NegativeStepError)
    # So that an array of pickles is not called damaged.
    assert issubclass(errors.PickleCodecDisabledError, errors.UnsupportedCodecError)


def test_stale_metadata_says_where():
    error = errors.StaleMetadataError("stale", differences=["a: shape"])
    assert isinstance(error, ValueError)
    assert error.differences == ["a: shape"]


# -- zellige.storage ------------------------------------------------------------------------------


def test_stores_are_the_same_by_both_ways():
    assert {"LocalStore", "MemoryStore", "Store", "StoreLike", "StorePath"} < set(zellige.storage.__all__)
    assert {"CacheStore", "HTTPStore", "LoggingStore", "ObjectStore", "PrefixStore"} < set(zellige.storage.__all__)
    for name in set(zellige.storage.__all__) - {"StoreLike", "ABSENT"}:
        assert getattr(zellige.storage, name).__name__ == name
    for name in ("LocalStore", "MemoryStore", "Store"):
        assert getattr(zellige.storage, name) is getattr(zellige, name)
    assert isinstance(zellige.storage.MemoryStore(), zellige.storage.StoreLike)
    assert zellige.storage.StorePath(zellige.MemoryStore(), "/a").path == "a"


MISSING = [
    "GpuMemoryStore",
    "ManagedMemoryStore",
]


@pytest.mark.parametrize("name", MISSING)
def test_a_store_that_is_not_there_yet_says_what_to_use(name):
    with pytest.raises(AttributeError, match=rf"^{name} is not in this version .*(use|subclass) \w*(Store|any)"):
        getattr(zellige.storage, name)
    assert not hasattr(zellige.storage, name)
    with pytest.raises(ImportError, match=name):
        exec(f"from zellige.storage import {name}")


def test_other_names_are_simply_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'Colour'"):
        zellige.storage.Colour


# -- zellige.dtype --------------------------------------------------------------------------------

PLAIN = {
    "Bool": "bool",
    "Int8": "int8",
    "Int16": "int16",
    "Int32": "int32",
    "Int64": "int64",
    "UInt8": "uint8",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
    "Float16": "float16",
    "Float32": "float32",
    "Float64": "float64",
    "Complex64": "complex64",
    "Complex128": "complex128",
    "VariableLengthUTF8": "string",
    "VariableLengthBytes": "bytes",
}

WITH_PARAMETERS: list[tuple[str, dict[str, Any], str]] = [
    ("DateTime64", {}, "M8"),
    ("DateTime64", {"unit": "s"}, "M8[s]"),
    ("DateTime64", {"unit": "us", "scale_factor": 10}, "M8[10us]"),
    ("TimeDelta64", {"unit": "D", "scale_factor": np.int64(7)}, "m8[7D]"),
    ("FixedLengthUTF32", {"length": 10}, "U10"),
    ("NullTerminatedBytes", {"length": np.uint8(10)}, "S10"),
    ("RawBytes", {"length": 10}, "V10"),
    ("Struct", {"fields": (("x", dtypes.parse_dtype("f4")), ("s", "U3"))}, "f4, U3"),
    ("Struct", {"fields": {"x": "int8", "in": zellige.dtype.Struct([("y", zellige.dtype.Bool)])}}, "i1, V1"),
    ("Structured", {"fields": [("x", zellige.dtype.Int16), ("t", zellige.dtype.DateTime64("s"))]}, "i2, M8[s]"),
]


@pytest.mark.parametrize("name", PLAIN)
def test_types_without_parameters(name):
    kind = getattr(zellige.dtype, name)
    assert kind() == dtypes.from_json(PLAIN[name])
    assert kind.name == PLAIN[name]
    assert issubclass(kind, zellige.dtype.ZDType)
    assert isinstance(kind(), zellige.dtype.ZDType)
    assert [other for other in PLAIN if isinstance(kind(), getattr(zellige.dtype, other))] == [name]
    assert zellige.dtype.parse_dtype(kind) is zellige.dtype.parse_dtype(kind()) is kind()
    with pytest.raises(TypeError):
        kind("little")


@pytest.mark.parametrize(("name", "parameters", "numpy"), WITH_PARAMETERS, ids=repr)
def test_types_with_parameters(name, parameters, numpy):
    kind = getattr(zellige.dtype, name)
    found = kind(**parameters)
    assert found == kind(*parameters.values())
    assert found == dtypes.from_json(found.to_json())
    assert isinstance(found, kind)
    assert not isinstance(found, zellige.dtype.Int8)
    assert found.to_native_dtype().itemsize == found.item_size == np.dtype(numpy).itemsize
    if np.dtype(numpy).names is None:
        assert found.to_native_dtype() == np.dtype(numpy)
        assert isinstance(zellige.dtype.parse_dtype(numpy), kind)
    else:
        assert found.to_native_dtype().names == tuple(dict(parameters["fields"]))


def test_elements_of_any_length_have_no_size():
    assert zellige.dtype.VariableLengthUTF8().item_size is None
    assert zellige.dtype.VariableLengthBytes().item_size is None
    assert zellige.dtype.VariableLengthUTF8().to_native_dtype() == np.dtypes.StringDType()


def test_the_byte_order_is_checked_and_no_more():
    for kind in (zellige.dtype.Int16, zellige.dtype.Float64, zellige.dtype.DateTime64):
        assert kind(endianness="big") == kind(endianness="little") == kind()
    assert zellige.dtype.FixedLengthUTF32(3, endianness="big") == zellige.dtype.FixedLengthUTF32(length=3)
    with pytest.raises(ValueError, match="endianness must be 'little' or 'big', found 'middle'"):
        zellige.dtype.Int16(endianness="middle")


@pytest.mark.parametrize(
    "make",
    [
        lambda: zellige.dtype.DateTime64("fortnight"),
        lambda: zellige.dtype.DateTime64("s", 0),
        lambda: zellige.dtype.FixedLengthUTF32(0),
        lambda: zellige.dtype.RawBytes(-1),
        lambda: zellige.dtype.Struct([]),
        lambda: zellige.dtype.Struct([("x", "int8"), ("x", "int8")]),
        lambda: zellige.dtype.Struct([("x", "string")]),
        lambda: zellige.dtype.parse_dtype("int8", zarr_format=4),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(ValueError, match=r"must be|unit|length|fields|zarr_format"):
        make()


@pytest.mark.parametrize("name", ["FixedLengthUTF32", "NullTerminatedBytes", "RawBytes", "Struct"])
def test_parameters_that_are_missing_are_named(name):
    kind = getattr(zellige.dtype, name)
    with pytest.raises(TypeError, match=r"'(length|fields)'"):
        kind()
    with pytest.raises(TypeError):
        kind("ten" if name != "Struct" else 10)
    with pytest.raises(errors.UnknownDataTypeError):
        dtypes.parse_dtype(kind)


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "VariableLengthBytes"])
def test_a_class_is_a_type_for_arrays_and_for_numpy(name):
    kind = getattr(zellige.dtype, name)
    assert dtypes.parse_dtype(kind) == kind()
    assert np.dtype(kind) == kind().to_native_dtype()


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (zellige.dtype.Int16, zellige.dtype.Int16),
        (zellige.dtype.Int16(), zellige.dtype.Int16),
        (zellige.dtype.DateTime64(unit="s"), zellige.dtype.DateTime64),
        (zellige.dtype.VariableLengthBytes(), zellige.dtype.VariableLengthBytes),
    ],
)
def test_arrays_take_these_types(dtype, kind):
    array = zellige.create_array(shape=3, dtype=dtype)
    assert isinstance(array.metadata.data_type, kind)
    assert array.dtype == zellige.dtype.parse_dtype(dtype).to_native_dtype()


def test_raw_bytes_are_those_of_the_specification_too():
    assert isinstance(dtypes.from_json("r24"), zellige.dtype.RawBytes)
    assert zellige.dtype.RawBytes(3).to_native_dtype() == dtypes.from_json("r24").to_native_dtype()
    assert not isinstance(dtypes.from_json("int8"), zellige.dtype.RawBytes)
    assert not isinstance("r24", zellige.dtype.RawBytes)


def test_the_registry_is_read_only_and_knows_what_documents_say():
    registry = zellige.dtype.data_type_registry
    assert registry["int16"] is registry.get("int16") is zellige.dtype.Int16
    for name, kind in registry.items():
        assert name in dtypes.table.TYPES or name in dtypes.table.FAMILIES
        assert kind.name == name or name in ("variable_length_bytes", "structured")
    with pytest.raises(TypeError):
        registry["int16"] = zellige.dtype.Int8


# -- importing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["storage", "dtype", "errors"])
def test_these_modules_add_nothing_to_what_every_use_imports(module):
    code = "import sys, zellige; zellige.open_array; before = set(sys.modules); "
    code += f"import zellige.{module}; print(*set(sys.modules) - before)"
    source = str(Path(zellige.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(found.stdout.split()) <= {f"zellige.{module}", "zellige.stores.resolve"}
