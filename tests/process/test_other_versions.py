"""What another version of prejit or JAX wrote is a clean miss, and stays for that version."""

PROGRAM = """
import prejit.key.environment as environment
jax_version, format_version = sys.argv[1:3]
if jax_version != "-":
    environment.around.versions = lambda: (jax_version, jax_version)
if format_version != "-":
    environment.FORMAT = int(format_version)
f = prejit.component(lambda x: jnp.sin(x) * 3 + 1, name="f")
out = bits(f(X))
report(bits=out, keys=sorted(entries() + entries("module")))
"""


def files(tmp_path):
    return {path: path.read_bytes() for path in (tmp_path / "store").rglob("*.entry")}


def test_another_version_is_a_miss_and_deletes_nothing(child, tmp_path):
    this = child(PROGRAM, "-", "-")
    assert this.counters["misses"] == this.counters["compiles"] == 1
    before = files(tmp_path)
    for versions in (("9.9.9", "-"), ("-", "999")):
        other = child(PROGRAM, *versions)
        assert (other.counters["misses"], other.counters["compiles"], other.counters["lowerings"]) == (1, 1, 1), (
            versions
        )
        assert other.counters["corrupt"] == other.counters["stale"] == other.counters["store_errors"] == 0
        assert other.said == []
        assert other.bits == this.bits
        assert before.items() <= files(tmp_path).items(), "what this version wrote is untouched"
        again = child(PROGRAM, *versions)
        assert (again.counters["hits"], again.counters["compiles"]) == (1, 0)
    assert len(files(tmp_path)) == 3 * len(before)
    back = child(PROGRAM, "-", "-")
    assert (back.counters["hits"], back.counters["compiles"]) == (1, 0)


NEWER = """
import hashlib, struct
from prejit.store.entry import FORMAT_VERSION, PREFIX_BYTES
f = prejit.component(lambda x: jnp.sin(x) * 3 + 1, name="f")
key = f.key_for(SPEC).digest
if sys.argv[1] == "make":
    expected = bits(f(X))
    for key in [key, *entries("module")]:
        path = entry_path(key)
        data = path.read_bytes()
        frame = struct.Struct("<8sIIQ32s")
        magic, version, *rest = frame.unpack(data[: frame.size])
        assert version == FORMAT_VERSION and frame.size + 32 == PREFIX_BYTES
        newer = frame.pack(magic, version + 1, *rest)
        path.write_bytes(newer + hashlib.sha256(newer).digest() + data[PREFIX_BYTES:])
    report(bits=expected)
else:
    before = entry_path(key).read_bytes()
    out = [bits(f(X)) for _ in range(2)]
    verified = prejit.get_store().verify()
    report(out=out, is_same=entry_path(key).read_bytes() == before)
"""


def test_an_entry_in_a_newer_format_is_a_miss_and_stays(child, store_files):
    made = child(NEWER, "make")
    read = child(NEWER, "read")
    assert read.out == [made.bits] * 2
    assert read.is_same
    assert (read.counters["misses"], read.counters["compiles"], read.counters["corrupt"]) == (1, 1, 0)
    assert "quarantine" not in store_files()
    assert read.said == []
