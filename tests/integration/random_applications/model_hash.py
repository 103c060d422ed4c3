"""The hash by which samples are drawn, in plain Python: XXH64 of one number, according to its
specification."""

from __future__ import annotations

_FIRST, _SECOND, _THIRD = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_FOURTH, _FIFTH = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = 2**64 - 1


def in_sample(n: int | None, percent: int, seed: int) -> bool:
    """Whether a message with this number is kept: whether its hash is among the smallest ones."""
    hashed = xxh64(seed, 42)
    if n is not None:
        hashed = xxh64(n, hashed)
    signed = hashed - 2**64 if hashed >= 2**63 else hashed
    return signed < -(2**63) + round(percent / 100 * 2**64)


def xxh64(number: int, seed: int) -> int:
    """The hash of a number of 64 bits, as an unsigned number."""
    made = (seed + _FIFTH + 8) & _ALL
    made ^= _turned(number * _SECOND & _ALL, 31) * _FIRST & _ALL
    made = (_turned(made, 27) * _FIRST + _FOURTH) & _ALL
    made = (made ^ made >> 33) * _SECOND & _ALL
    made = (made ^ made >> 29) * _THIRD & _ALL
    return made ^ made >> 32


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _ALL
