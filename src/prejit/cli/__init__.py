"""Own what a person types: the `prejit` command and what it prints.

Whatever a command shows comes from the library's own functions; no logic of stores, keys or compiles lives here.
Invariant: `--help` and the `cache` commands initialize no backend of JAX's, so they never wait for a device.
"""
