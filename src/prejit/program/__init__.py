"""Own `prejit.jit`: which parts of a traced program are compiled on their own, how they are linked, how they run.

It must not know how an executable is compiled, stored or loaded.
Invariant: a linked program computes what the whole one would, in the same order of effects; what can't be cut is one
module.
"""
