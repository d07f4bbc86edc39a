"""`ComponentKey`: everything a compile depends on, by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from prejit.key.encoding import pack, text_token

GROUPS: Final = ("identity", "signature", "transforms", "environment")
FORMAT: Final = 1
"""Version of what goes into a key and how it is encoded. A change makes all keys new."""


class Ingredient(NamedTuple):
    """A named part of a key.

    Attributes:
        name: Unique within its group, such as `jaxlib` or `in_avals`.
        value: Canonical text: equal values have equal text, and only they.
    """

    name: str
    value: str


class Difference(NamedTuple):
    """An ingredient in which two keys differ.

    Attributes:
        group: `identity`, `signature`, `transforms` or `environment`.
        name: The ingredient's name.
        ours: Its value in the key that was asked, None if it lacks the ingredient.
        theirs: Its value in the other key, None if it lacks the ingredient.
    """

    group: str
    name: str
    ours: str | None
    theirs: str | None


@dataclass(frozen=True, slots=True, eq=False)
class ComponentKey:
    """Identify a compile by named ingredients in four ordered groups.

    Two keys are equal if and only if all their ingredients are, in order; `hash` and `digest` agree with that.

    Attributes:
        identity: What function or program it is.
        signature: What a call looks like: avals, treedef, static values, donation.
        transforms: What was done to it: `vmap`, `jvp` and so on, outermost first.
        environment: What it was made with and for: versions, platform, options.

    Example:
        >>> key = ComponentKey(identity=[("name", "f")], signature=[("in_avals", "f32[2]")])
        >>> key == ComponentKey.from_json(key.to_json())
        True
    """

    identity: tuple[Ingredient, ...] = ()
    signature: tuple[Ingredient, ...] = ()
    transforms: tuple[Ingredient, ...] = ()
    environment: tuple[Ingredient, ...] = ()
    digest: str = field(init=False, repr=False)
    """SHA-256 of all ingredients, in hex: the same in every process and on every machine."""

    def __post_init__(self) -> None:
        tokens: list[bytes] = []
        for group in GROUPS:
            ingredients = _ingredients(group, getattr(self, group))
            object.__setattr__(self, group, ingredients)
            parts = [text_token(text) for ingredient in ingredients for text in ingredient]
            tokens.append(pack(group.encode(), *parts))
        object.__setattr__(self, "digest", hashlib.sha256(pack(b"key", b"%d" % FORMAT, *tokens)).hexdigest())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComponentKey):
            return NotImplemented
        return self.digest == other.digest and all(getattr(self, group) == getattr(other, group) for group in GROUPS)

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __str__(self) -> str:
        """Return a short line for people, such as `layer(f32[2,64,256], f32[]~) @ cpu 1a2b3c4d`."""
        name = self.get("identity", "name") or self.get("identity", "key") or "program"
        avals = self.get("signature", "in_avals") or ""
        shown = avals if len(avals) <= 100 else f"{avals[:96]} …"
        steps = "".join(f".{ingredient.name}" for ingredient in self.transforms)
        platform = self.get("environment", "platform")
        place = f" @ {platform}" if platform else ""
        return f"{name}{steps}({shown}){place} {self.digest[:8]}"

    def get(self, group: str, name: str) -> str | None:
        """Return the value of an ingredient, or None if the group has none of that name."""
        return next((ingredient.value for ingredient in getattr(self, group) if ingredient.name == name), None)

    def replace(self, **groups: Iterable[Ingredient | tuple[str, str]]) -> Self:
        """Return a key with whole groups replaced: `key.replace(environment=...)`.

        Raises:
            TypeError: A name is not one of the four groups; the message has it.
        """
        unknown = groups.keys() - set(GROUPS)
        if unknown:
            raise TypeError(f"replacing groups of a key: expected some of {', '.join(GROUPS)}, got {min(unknown)!r}")
        return type(self)(**{group: tuple(groups.get(group, getattr(self, group))) for group in GROUPS})  # pyright: ignore[reportArgumentType]

    def diff(self, other: ComponentKey) -> tuple[Difference, ...]:
        """List the ingredients in which two keys differ, in the order of the groups.

        Returns:
            One `Difference` per name. Equal keys give an empty tuple; keys that only order a group differently give one
            difference, named `order`, with the names.
        """
        found: list[Difference] = []
        for group in GROUPS:
            ours, theirs = dict(getattr(self, group)), dict(getattr(other, group))
            names = list(dict.fromkeys([*ours, *theirs]))
            changed = [
                Difference(group, name, ours.get(name), theirs.get(name))
                for name in names
                if ours.get(name) != theirs.get(name)
            ]
            if not changed and getattr(self, group) != getattr(other, group):
                changed = [Difference(group, "order", " ".join(ours), " ".join(theirs))]
            found += changed
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `from_json` reads: the format version, and pairs of name and value per group."""
        groups = {group: [list(ingredient) for ingredient in getattr(self, group)] for group in GROUPS}
        return {"format": FORMAT, **groups}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read back what `to_json` gave.

        Raises:
            ValueError: It is of another format version, or is not a key at all; the message says where.
        """
        if data.get("format") != FORMAT:
            raise ValueError(f"reading a key: expected format {FORMAT}, got {data.get('format')!r} at 'format'")
        groups: dict[str, tuple[Ingredient, ...]] = {}
        for group in GROUPS:
            try:
                groups[group] = _ingredients(group, data[group])
            except (KeyError, TypeError) as error:
                raise ValueError(f"reading a key: expected pairs of text at {group!r}") from error
        return cls(**groups)


def _ingredients(group: str, pairs: Iterable[Ingredient | tuple[str, str]]) -> tuple[Ingredient, ...]:
    ingredients = tuple([Ingredient(*pair) for pair in pairs])
    names: set[str] = set()
    for name, value in ingredients:
        if type(name) is not str or type(value) is not str:
            raise TypeError(
                f"building a key: expected an ingredient's name and value as text, got {name!r} in {group!r}"
            )
        # A transform may be applied twice; any other name says one thing once.
        if name in names and group != "transforms":
            raise ValueError(f"building a key: expected ingredients named once, got {name!r} twice in {group!r}")
        names.add(name)
    return ingredients
