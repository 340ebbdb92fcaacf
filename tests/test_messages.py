import pytest

from mtcli.reporting.messages import format_duration, format_size


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (11_100, "3 h 05 min"),
        (187_200, "2 d 4 h"),
    ],
)
def test_a_duration_has_readable_units(seconds, expected):
    assert format_duration(seconds) == expected


def test_a_memory_size_has_readable_units():
    assert format_size(512_000_000) == "512 MB"
    assert format_size(3_400_000_000) == "3.4 GB"
