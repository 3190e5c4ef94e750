"""Pools and the storage profile: what their values may look like."""

from pathlib import Path

import pytest

from pqbroker.conf.declare import ConfigError
from pqbroker.conf.storage import ChannelProfile, parse_pools, parse_profile


def test_pools_are_directories_by_name() -> None:
    assert parse_pools(["big=/mnt/big", "cold-1=cold"]) == {"big": Path("/mnt/big"), "cold-1": Path("cold")}


@pytest.mark.parametrize("entry", ["big", "=/mnt", "big=", "a/b=/mnt", ".=/mnt"])
def test_a_pool_without_name_or_directory_is_refused_with_the_right_form(entry: str) -> None:
    with pytest.raises(ConfigError, match="NAME=DIRECTORY"):
        parse_pools([entry])


@pytest.mark.parametrize("entries", [["main=/x"], ["big=/x", "big=/y"]])
def test_a_pool_is_named_once(entries: list[str]) -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse_pools(entries)


def test_a_profile_says_pool_and_limits_by_type_and_channel() -> None:
    profile = parse_profile(["persqueue.2=big:operations=5:bytes=6:space=7", "scheme.0=main"], ["big"])
    assert profile == {("persqueue", 2): ChannelProfile("big", 5, 6, 7), ("scheme", 0): ChannelProfile("main")}
    assert [channel.is_limited for channel in profile.values()] == [True, False]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("persqueue.2", "TYPE.CHANNEL=POOL"),
        ("table.2=big", "types are scheme, persqueue, coordinator"),
        ("persqueue.3=big", r"channels 0 \(log\)"),
        ("persqueue.2=cold", "there is main, big"),
        ("persqueue.2=big:speed=1", "limits are operations=N"),
        ("persqueue.2=big:bytes=-1", "limits are operations=N"),
        ("persqueue.2=big:bytes", "limits are operations=N"),
    ],
)
def test_a_profile_of_another_form_is_refused_with_cause_and_cure(entry: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_profile([entry], ["big"])
