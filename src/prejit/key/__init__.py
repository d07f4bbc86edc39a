"""Own the identity of a compile: what enters a key, how it is encoded, and what differs between two keys.

It must not know about stores, compiling or components.
Invariant: equal digests mean equal programs in equal surroundings, in every process; no identity is a `KeyingError`.
"""

from prejit.key.component_key import ComponentKey, Difference, Ingredient
from prejit.key.environment import environment_ingredients
from prejit.key.fingerprint import fingerprint, treedef_token
from prejit.key.program import ProgramIdentity, program_digest

__all__ = [
    "ComponentKey",
    "Difference",
    "Ingredient",
    "ProgramIdentity",
    "environment_ingredients",
    "fingerprint",
    "program_digest",
    "treedef_token",
]
