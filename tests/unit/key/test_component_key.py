import copy
import json

import pytest

from prejit.key import ComponentKey, Difference, Ingredient

KEY = ComponentKey(
    identity=[Ingredient("name", "layer"), Ingredient("program", "1234")],
    signature=[("in_avals", "f32[2,64,256], f32[]~")],
    transforms=[("vmap", "0,None"), ("vmap", "0,None")],
    environment=[("platform", "cpu"), ("jax", "0.10.2")],
)


def test_equal_keys_have_equal_hashes_digests_and_text():
    same = ComponentKey.from_json(json.loads(json.dumps(KEY.to_json())))
    assert (same, hash(same), same.digest, str(same)) == (KEY, hash(KEY), KEY.digest, str(KEY))
    assert copy.deepcopy(KEY) == KEY


def test_the_digest_is_fixed():
    # A change here makes every stored entry unreachable: raise FORMAT and say so in the changelog.
    assert ComponentKey(identity=[("name", "f")]).digest == GOLDEN


GOLDEN = "7d79871d596a2c0bf1633c49eda214ea844ac2e8a5a9090d1c299a81535afca8"


def test_text_is_short_and_says_what_matters():
    assert str(KEY) == f"layer.vmap.vmap(f32[2,64,256], f32[]~) @ cpu {KEY.digest[:8]}"
    assert len(str(KEY.replace(signature=[("in_avals", "f32[1], " * 500)]))) < 160


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": [("name", "layer"), ("program", "1235")]},
        {"identity": [("name", "layerprogram"), ("", "1234")]},
        {"identity": [("program", "1234"), ("name", "layer")]},
        {"identity": []},
        {"signature": [("in_avals", "f32[2,64,256], f32[]")]},
        {"transforms": [("vmap", "0,None")]},
        {"environment": (*KEY.environment, Ingredient("x64", "true"))},
        {"signature": (), "transforms": KEY.signature},
    ],
)
def test_any_difference_in_an_ingredient_makes_another_key(changed):
    other = KEY.replace(**changed)
    assert other != KEY
    assert other.digest != KEY.digest
    assert other.diff(KEY)
    assert ComponentKey.from_json(other.to_json()) == other


def test_diff_lists_what_differs():
    other = KEY.replace(environment=[("platform", "gpu"), ("jax", "0.10.2"), ("extra", "1")])
    assert KEY.diff(other) == (
        Difference("environment", "platform", "cpu", "gpu"),
        Difference("environment", "extra", None, "1"),
    )
    assert KEY.diff(KEY) == ()
    swapped = KEY.replace(environment=KEY.environment[::-1])
    assert KEY.diff(swapped) == (Difference("environment", "order", "platform jax", "jax platform"),)


def test_a_key_differs_from_other_things():
    assert KEY != "layer"
    assert KEY.digest != KEY


def test_misuse_is_reported():
    with pytest.raises(TypeError, match="identity, signature"):
        KEY.replace(enviroment=[])
    with pytest.raises(TypeError, match="as text"):
        ComponentKey(identity=[("n", 3)])
    with pytest.raises(ValueError, match="twice"):
        ComponentKey(identity=[("n", "1"), ("n", "2")])
    with pytest.raises(ValueError, match="format"):
        ComponentKey.from_json(KEY.to_json() | {"format": 99})
    with pytest.raises(ValueError, match="signature"):
        ComponentKey.from_json({name: part for name, part in KEY.to_json().items() if name != "signature"})
    with pytest.raises(ValueError, match="identity"):
        ComponentKey.from_json(KEY.to_json() | {"identity": [["name", 3]]})


def test_keys_are_frozen():
    with pytest.raises(AttributeError):
        KEY.identity = ()
