"""Write this version's golden entry: `python tests/compat/make_golden.py`, once per format version."""

from pathlib import Path

from prejit.store import FORMAT_VERSION, CacheEntry

GOLDEN = Path(__file__).parent / "golden"


def golden_entry() -> CacheEntry:
    """The entry that every golden file holds; new fields get their defaults in older files."""
    return CacheEntry(
        key="5f" * 32,
        kind="executable",
        name="layer",
        variant="",
        created=1_700_000_000.25,
        ingredients=(("identity", "program", "ab" * 32), ("environment", "jax", "0.10.2")),
        meta={"in_avals": ["f32[2,3]"], "out_avals": ["f32[2]~"], "nested": {"é": [None, True, 1.5, [0]]}},
        sections={"executable": bytes(range(256)) * 40, "empty": b""},
    )


if __name__ == "__main__":
    path = GOLDEN / f"entry-v{FORMAT_VERSION}.bin"
    if path.exists():
        raise SystemExit(f"{path} is there already; a format version has one golden file for good")
    path.write_bytes(golden_entry().to_bytes())
