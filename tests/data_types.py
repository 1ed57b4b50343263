"""Data types of the specification beyond the core, as tests name them (spec 4.2, 4.3)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from zellige.dtypes import from_json

STRING = np.dtypes.StringDType()


def named(name, **configuration):
    return {"name": name, "configuration": configuration}


def struct_of(**fields):
    return named("struct", fields=[{"name": name, "data_type": field} for name, field in fields.items()])


def pairs_of(**fields):
    return named("structured", fields=[list(pair) for pair in fields.items()])


SECONDS = named("numpy.datetime64", unit="s", scale_factor=1)
POINT = struct_of(x="int16", y="uint8", z="float32")
NESTED = struct_of(p=struct_of(x="int16", b="bfloat16"), t=named("fixed_length_utf32", length_bytes=8), n="int4")

# the document, numpy's type, whether the byte order matters, the default fill value as JSON
TABLE = [
    ("string", STRING, False, ""),
    ("bytes", np.dtype(object), False, ""),
    (named("fixed_length_utf32", length_bytes=8), np.dtype("U2"), True, ""),
    (named("null_terminated_bytes", length_bytes=3), np.dtype("S3"), False, ""),
    (named("raw_bytes", length_bytes=3), np.dtype("V3"), False, "AAAA"),
    (SECONDS, np.dtype("M8[s]"), True, "NaT"),
    (named("numpy.datetime64", unit="us", scale_factor=10), np.dtype("M8[10us]"), True, "NaT"),
    (named("numpy.timedelta64", unit="D", scale_factor=7), np.dtype("m8[7D]"), True, "NaT"),
    (named("numpy.timedelta64", unit="generic", scale_factor=1), np.dtype("m8"), True, "NaT"),
    (POINT, np.dtype([("x", "i2"), ("y", "u1"), ("z", "f4")]), True, {"x": 0, "y": 0, "z": 0.0}),
    (struct_of(a="int8", b="bool"), np.dtype([("a", "i1"), ("b", "?")]), False, {"a": 0, "b": False}),
    (
        NESTED,
        np.dtype([("p", [("x", "i2"), ("b", ml_dtypes.bfloat16)]), ("t", "U2"), ("n", ml_dtypes.int4)]),
        True,
        {"p": {"x": 0, "b": 0.0}, "t": "", "n": 0},
    ),
    *((name, np.dtype(getattr(ml_dtypes, name)), False, 0) for name in ("int2", "uint2", "int4", "uint4")),
    ("bfloat16", np.dtype(ml_dtypes.bfloat16), True, 0.0),
    ("complex_float16", np.dtype(ml_dtypes.complex32), True, [0.0, 0.0]),
    ("complex_bfloat16", np.dtype(ml_dtypes.bcomplex32), True, [0.0, 0.0]),
]
# name, bits, the largest number, infinity, the pattern of "NaN" (spec 4.3)
SMALL = [
    ("float4_e2m1fn", 4, 6.0, None, None),
    ("float6_e2m3fn", 6, 7.5, None, None),
    ("float6_e3m2fn", 6, 28.0, None, None),
    ("float8_e3m4", 8, 15.5, 0x70, 0x78),
    ("float8_e4m3", 8, 240.0, 0x78, 0x7C),
    ("float8_e4m3b11fnuz", 8, 30.0, None, 0x80),
    ("float8_e4m3fn", 8, 448.0, None, 0x7F),
    ("float8_e4m3fnuz", 8, 240.0, None, 0x80),
    ("float8_e5m2", 8, 57344.0, 0x7C, 0x7E),
    ("float8_e5m2fnuz", 8, 57344.0, None, 0x80),
    ("float8_e8m0fnu", 8, 2.0**127, None, 0xFF),
]
TABLE += [(name, np.dtype(getattr(ml_dtypes, name)), False, 0.0) for name, *_ in SMALL if name != "float8_e8m0fnu"]
TABLE += [("float8_e8m0fnu", np.dtype(ml_dtypes.float8_e8m0fnu), False, 2.0**-127)]


def bits(fill):
    return int.from_bytes(fill.tobytes(), "little")


def pattern(name, code):
    dtype = from_json(name).numpy
    return np.frombuffer(code.to_bytes(dtype.itemsize, "little"), dtype)[0, ...]
