#!/usr/bin/env python3
"""Writes the golden frames beside this file, from docs/wire-format.md alone: none of the library's code is used.

Run it only when a frame or payload version is added; the files are compared byte for byte by frame_test.cpp.
"""

import pathlib
import struct
import zlib


def frame(text, wire_id, codec_version, dtype, count, payload):
    body = text.encode() + payload
    header = b"GWRF" + bytes([1, wire_id, codec_version, dtype])
    header += count.to_bytes(5, "little") + len(payload).to_bytes(5, "little") + len(text).to_bytes(2, "little")
    header += struct.pack("<II", zlib.crc32(text.encode()), zlib.crc32(body))
    assert len(header) == 28
    return header + struct.pack("<I", zlib.crc32(header)) + body


FRAMES = {
    # 1, -2, 0.5, 0, NaN: f32
    "none.frame": frame("none", 1, 1, 0, 5, bytes.fromhex("0000803f 000000c0 0000003f 00000000 0000c07f")),
    # 1, -2, 0.5, 65504, 2^-24 and two zero bytes up to a multiple of 4
    "f16.frame": frame("f16", 2, 1, 0, 5, bytes.fromhex("003c 00c0 0038 ff7b 0100 0000")),
    # 1, -2, 0.5 and padding, from gradients that were bf16 already (dtype 2)
    "bf16.frame": frame("bf16", 3, 1, 2, 3, bytes.fromhex("803f 00c0 003f 0000")),
    "empty.frame": frame("bf16", 3, 1, 0, 0, b""),
}

for name, content in FRAMES.items():
    (pathlib.Path(__file__).parent / name).write_bytes(content)
