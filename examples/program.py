"""A training step in parts: run me twice, then change the learning rate, or the layer, and run me again."""

import jax
import jax.numpy as jnp

import prejit

LEARNING_RATE = 0.1


@prejit.component
def layer(w, x):
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    hidden = jax.nn.gelu(x * jax.lax.rsqrt(mean_square + 1e-6) @ w["up"])
    return x + hidden @ w["down"]


def loss(layers, x):
    for w in layers:
        x = layer(w, x)
    return jnp.mean(x * x)


@prejit.jit(donate_argnums=0)
def step(layers, x):
    value, gradient = jax.value_and_grad(loss)(layers, x)
    return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, layers, gradient), value


keys = jax.random.split(jax.random.key(0), 9)
layers = [
    {"up": jax.random.normal(key, (256, 1024)) / 16, "down": jax.random.normal(key, (1024, 256)) / 32}
    for key in keys[:-1]
]
x = jax.random.normal(keys[-1], (128, 256))

print(step.plan(layers, x))
for _ in range(3):
    layers, value = step(layers, x)
    print(f"loss {value:.4f}")

counters = prejit.counters()
print({name: counters[name] for name in ("traces", "lowerings", "compiles", "loads")})
