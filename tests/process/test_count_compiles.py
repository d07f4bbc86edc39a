"""The public counter counts what it says, in blocks, across threads, and not after its end."""

PROGRAM = """
def count(counts):
    return [counts.lowered, counts.compiled, counts.cached]

with count_compiles() as outer:
    jax.jit(lambda x: x * 2, inline=False)(X)
    with count_compiles() as inner:
        def doubled(x):
            return x * 2
        thread = threading.Thread(target=lambda: jax.jit(doubled)(X))
        thread.start()
        thread.join()
    in_block = count(inner)
    jax.jit(lambda x: x - 1)(X)
after_block = count(inner)
f = prejit.component(lambda x: x / 3, name="f")
f(X)
forget()
with count_compiles() as loading:
    f(X), jax.jit(doubled)(X)
try:
    with count_compiles() as failing:
        raise KeyError
except KeyError:
    jax.jit(lambda x: x + 11)(X)
report(outer=count(outer), in_block=in_block, after_block=after_block, loading=count(loading), failing=count(failing))
"""


def test_blocks_threads_and_answers_from_a_cache(child):
    done = child(PROGRAM)
    assert done.in_block == done.after_block == [["jit(doubled)"], ["jit(doubled)"], []]
    assert done.outer[1] == ["jit(<lambda>)", "jit(doubled)", "jit(<lambda>)"]
    assert done.loading == [["jit(doubled)"], [], ["jit(doubled)"]]
    assert done.failing == [[], [], []]
