import zlib

import fold
import pytest


@pytest.mark.parametrize("data", [b"", b"a", b"Wikipedia", bytes(range(256)) * 1000])
def test_adler(data):
    assert fold.adler(data) == zlib.adler32(data)


def test_same():
    assert fold.same(b"ab", b"ab")
    assert not fold.same(b"ab", b"ba")
