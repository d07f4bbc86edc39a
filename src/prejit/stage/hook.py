"""Stand in JAX's way to the compiler, at no cost until something compiles."""

from typing import Any

from prejit import events
from prejit._jax import compilation
from prejit.config import is_enabled, settings

__all__ = ["install"]


def install() -> None:
    """Back JAX's compilation cache by the store, from now on."""
    compilation.install(_handle)


def _handle(request: compilation.ModuleRequest, compile_now: compilation.Compile) -> Any:
    if events.is_own_compile() or not is_enabled() or not settings().eager_cache:
        return compile_now()
    from prejit.stage.eager import get_or_compile  # see the note in stage/__init__.py

    return get_or_compile(request, compile_now)
