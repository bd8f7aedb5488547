"""``cache stats``: counts what is there and changes nothing."""

from __future__ import annotations

SWING = "synth all-reduce-swing --gpus 8 --ports 2 --message 1MiB --workers 0"


def test_an_empty_cache_is_not_made(lumenfarm, cache_folder) -> None:
    ended = lumenfarm("cache stats --json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["entries"] == ended.json["bytes"] == 0
    assert ended.json["oldest"] is None
    assert not cache_folder.exists()


def test_what_a_job_left(lumenfarm, cache_folder) -> None:
    lumenfarm(SWING)
    files = [path for path in cache_folder.rglob("*") if path.is_file()]
    found = lumenfarm("cache stats --json").json
    assert found["url"] == cache_folder.as_uri()
    assert found["entries"] == sum(found["by_kind"].values()) == sum(found["by_versions"].values()) == len(files)
    assert found["bytes"] == sum(path.stat().st_size for path in files)
    assert found["damaged"] == found["quarantined"] == 0
    assert found["oldest"] <= found["newest"]
    table = lumenfarm("cache stats").out
    assert cache_folder.as_uri() in table
    assert f"{len(files)} (" in table


def test_damage_is_counted_and_then_set_aside_by_the_next_job(lumenfarm, cache_folder) -> None:
    """By one that reads all there is: of a search only what it found is read again."""
    lumenfarm(f"{SWING} --method candidates")
    victim = next(path for path in cache_folder.rglob("*") if path.is_file())
    victim.write_bytes(victim.read_bytes()[:-1])
    assert lumenfarm("cache stats --json").json["damaged"] == 1
    assert lumenfarm(f"{SWING} --method candidates --json").json["work"]["from_cache"] > 0
    found = lumenfarm("cache stats --json").json
    assert (found["damaged"], found["quarantined"]) == (0, 1)


def test_another_folder(lumenfarm, tmp_path) -> None:
    lumenfarm(f"{SWING} --cache other")
    assert lumenfarm("cache stats --cache other --json").json["entries"] > 0
    assert lumenfarm("cache stats --json").json["entries"] == 0
    assert lumenfarm("cache stats --cache none --json").json["url"] == "none"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
