"""The words of configurations as enumerations, for scripts that import them; plain strings do as well."""

from __future__ import annotations

from enum import StrEnum

Endian = StrEnum("Endian", ["little", "big"])
"""The byte orders of `BytesCodec`."""
BloscShuffle = StrEnum("BloscShuffle", ["noshuffle", "shuffle", "bitshuffle"])
"""What `BloscCodec` does before it compresses."""
BloscCname = StrEnum("BloscCname", ["lz4", "lz4hc", "blosclz", "zstd", "snappy", "zlib"])
"""The compressors of `BloscCodec`."""
ShardingCodecIndexLocation = StrEnum("ShardingCodecIndexLocation", ["start", "end"])
"""Where the index of a shard is."""
SubchunkWriteOrder = StrEnum("SubchunkWriteOrder", ["lexicographic"])
"""In which order inner chunks lie in a shard; here always in that of their coordinates."""
