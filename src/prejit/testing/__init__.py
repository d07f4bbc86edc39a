"""What tests of prejit, and of what is built on it, need: owns the store's contract and a faulty file system.

May know every other package; no other package may know it.
Invariant: importing it needs no pytest and initializes no backend of JAX's.
"""

from prejit.testing.compiles import CompileCounts, count_compiles
from prejit.testing.contract import StoreContract, make_entry
from prejit.testing.faults import BrokenLocks, FaultyFileSystem, SimulatedCrash

__all__ = [
    "BrokenLocks",
    "CompileCounts",
    "FaultyFileSystem",
    "SimulatedCrash",
    "StoreContract",
    "count_compiles",
    "make_entry",
]
