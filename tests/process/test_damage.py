"""Damaged entries of real executables: counted, compiled again, repaired; never a crash, never a wrong value."""

import pytest

START = """
import dataclasses
f = prejit.component(lambda x: jnp.sin(x) * 3 + x @ x, name="f")
good = bits(f(X))
key = f.key_for(SPEC).digest
[module] = entries("module")
path = entry_path(key)
store = prejit.get_store()

def call():
    forget()
    n = since()
    out = bits(f(X))
    return out == good, n()
"""


def test_every_kind_of_damage_is_repaired(child):
    done = child(
        START
        + """
whole = path.read_bytes()
other = prejit.component(lambda x: x * 2, name="other")
other(X)
foreign = entry_path(other.key_for(SPEC).digest).read_bytes()
steps = max(1, len(whole) // 40)
damages = {"empty": b"", "half": whole[: len(whole) // 2], "cut by one": whole[:-1], "longer": whole + b"x",
           "another entry": foreign, "text": b"not an entry at all" * 20, "zeros": bytes(len(whole))}
for at in [*range(0, 100, 7), *range(100, len(whole), steps), len(whole) - 1]:
    flipped = bytearray(whole)
    flipped[at] ^= 1 << at % 8
    damages[f"bit at {at}"] = bytes(flipped)
wrong = {}
for name, data in damages.items():
    path.write_bytes(data)
    is_right, n = call()
    seen_by_counters = [n[c] for c in ("corrupt", "compiles", "lowerings", "loads", "hits")]
    is_right_again, m = call()
    is_repaired = is_right_again and m["hits"] == 1 and m["compiles"] == 0
    if not (is_right and is_repaired and seen_by_counters == [1, 1, 0, 0, 0]):
        wrong[name] = [is_right, is_right_again, n, m]
report(nr=len(damages), wrong=wrong, kept=len(list(store.path.rglob("quarantine/*"))))
"""
    )
    assert done.nr > 50
    assert done.wrong == {}
    assert done.counters["corrupt"] == done.nr
    assert done.kept > 0, "what was damaged is kept aside for whoever wants to know why"


def test_damage_is_found_by_a_later_process(child):
    program = (
        START.replace("good = bits(f(X))", "good = bits(f(X)) if sys.argv[1] == 'make' else sys.argv[2:]")
        + """
if sys.argv[1] == "make":
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    report(bits=good)
else:
    report(first=call(), second=call(), done=prejit.counters())
"""
    )
    made = child(program, "make")
    read = child(program, "read", *made.bits)
    (is_right, first), (is_right_again, second) = read.first, read.second
    assert is_right
    assert is_right_again
    assert (first["corrupt"], first["compiles"]) == (1, 1)
    assert (second["hits"], second["compiles"]) == (1, 0)


def test_bytes_that_the_backend_rejects_fall_to_the_module(child):
    done = child(
        START
        + """
original = store.get(key)
results = {}
rejected = {"garbage": b"garbage" * 200, "nothing": b"", "half": original.sections["executable"][:1000]}
for name, payload in rejected.items():
    assert store.put(dataclasses.replace(original, sections={"executable": payload}))
    first = call()
    results[name] = [first, len(store.get(key).sections["executable"]), call()]
results["no section"] = [(store.put(dataclasses.replace(original, sections={})), call())[1],
                         len(store.get(key).sections["executable"]), call()]
results["no description"] = [(store.put(dataclasses.replace(original, meta={})), call())[1],
                             len(store.get(key).sections["executable"]), call()]
report(results=results, size=len(original.sections["executable"]))
"""
    )
    for name, (first, size, second) in done.results.items():
        is_right, n = first
        assert is_right, name
        assert (n["stale"], n["compiles"], n["lowerings"], n["corrupt"]) == (1, 1, 0, 0), (name, n)
        assert 0.5 < size / done.size < 2, name
        is_right, n = second
        assert is_right, name
        assert (n["hits"], n["stale"], n["compiles"]) == (1, 0, 0), (name, n)


NESTED = START.replace(
    "jnp.sin(x) * 3", "jnp.linalg.inv(jnp.outer(jnp.sin(x), x) + jnp.eye(16)) @ jnp.where(x > 0, x, 0)"
)


@pytest.mark.parametrize("start", [START, NESTED], ids=["plain", "with inner jit calls"])
def test_each_rung_of_the_ladder(child, start):
    done = child(
        start
        + """
module_path = entry_path(module)
kept = store.get(module)
def without(*paths):
    [path.unlink() for path in paths]
    return call()
steps = {"no executable": without(path), "neither": without(path, module_path), "no module": without(module_path)}
# The last rung: a module that does not parse is lowered anew, and so is one that is damaged.
assert store.put(dataclasses.replace(kept, sections={"module": b"ML" * 50}))
steps["bad module"] = without(path)
data = bytearray(module_path.read_bytes())
data[-1] ^= 1
module_path.write_bytes(data)
steps["damaged module"] = without(path)
steps["repaired"] = without(path)
steps["last"] = call()
report(steps=steps)
"""
    )
    assert all(is_right for is_right, _ in done.steps.values())
    assert {name: (n["lowerings"], n["compiles"], n["loads"]) for name, (_, n) in done.steps.items()} == {
        "no executable": (0, 1, 0),
        "neither": (1, 1, 0),
        "no module": (0, 0, 1),
        "bad module": (1, 1, 0),
        "damaged module": (1, 1, 0),
        "repaired": (0, 1, 0),
        "last": (0, 0, 1),
    }
