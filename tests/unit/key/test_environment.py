import json
import threading

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType

from prejit._jax import environment as around
from prejit.errors import KeyingError
from prejit.key import environment_ingredients
from prejit.key.environment import parse_flags
from prejit.key.options import COMPILE_ONLY, IGNORED_FLAGS, IRRELEVANT, MATTERS


def ingredients(kind="executable", **changes):
    arguments = {"platform": "cpu", "devices": jax.devices("cpu")[:1]} | changes
    return dict(environment_ingredients(kind, **arguments))


def added(setting, kind="executable"):
    before = ingredients(kind)
    # jax.set_mesh takes effect when it is called, so it comes as a function.
    with setting() if callable(setting) and not hasattr(setting, "__enter__") else setting:
        after = ingredients(kind)
    assert ingredients(kind) == before
    return {name: value for name, value in after.items() if before.get(name) != value}


def test_every_option_of_this_jax_is_in_exactly_one_table():
    known = [*MATTERS, *COMPILE_ONLY, *IRRELEVANT]
    assert len(known) == len(set(known))
    unknown = set(around.option_names()) - set(known)
    assert not unknown, f"decide whether these options matter, in prejit.key.options: {sorted(unknown)}"


def test_every_option_that_jax_traces_by_is_one_that_matters():
    options = set(around.option_names())
    traced = {name for name in around.trace_context_names() if name in options}
    locations_only = {"jax_hlo_source_file_canonicalization_regex"}
    assert traced - set(MATTERS) - set(COMPILE_ONLY) == locations_only


def test_every_option_that_matters_is_seen_by_dispatch_or_has_a_reason_not_to_be():
    options = set(around.option_names())
    # In the trace context but not in the C++ cache key (jax issue 40609); disable_jit is handled before the cache.
    not_dispatched = {"jax_high_dynamic_range_gumbel", "jax_mutable_array_checks"}
    untraced = (set(MATTERS) | set(COMPILE_ONLY)) & options - set(around.trace_context_names())
    missing = untraced | not_dispatched & options
    assert missing - set(around.SETTLED_OPTIONS) == set(around.DISPATCH_OPTIONS) & options
    assert not set(around.SETTLED_OPTIONS) & set(around.DISPATCH_OPTIONS)


def test_usual_values_are_left_unsaid():
    assert [name for name in ingredients() if name.startswith(("option.", "context.", "mesh."))] == []


def test_an_option_shows_with_its_value_on_the_thread_that_set_it():
    assert added(jax.enable_x64(True)) == {"option.jax_enable_x64": "true"}
    assert added(jax.default_matmul_precision("highest")) == {"option.jax_default_matmul_precision": '"highest"'}
    assert added(jax.default_prng_impl("rbg")) == {"option.jax_default_prng_impl": '"rbg"'}
    assert added(jax.numpy_dtype_promotion("strict")) == {
        "option.jax_numpy_dtype_promotion": "NumpyDtypePromotion.STRICT"
    }
    assert added(jax.debug_nans(True)) == {"option.jax_debug_nans": "true"}
    assert added(jax.default_device(jax.devices("cpu")[0])) == {"option.jax_default_device": "cpu:0"}
    assert added(jax.log_compiles(True)) == {}

    seen = []
    with jax.enable_x64(True):
        thread = threading.Thread(target=lambda: seen.append(ingredients()))
        thread.start()
        thread.join()
    assert "option.jax_enable_x64" not in seen[0]


def test_a_compile_option_matters_to_executables_only():
    before = ingredients("module")
    previous = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        assert ingredients("module") == before
        assert ingredients()["option.jax_disable_most_optimizations"] == "true"
    finally:
        jax.config.update("jax_disable_most_optimizations", previous)


def test_contexts_show():
    context = jax.make_user_context(default_value=None)
    assert [name.startswith("context.user_context") for name in added(context(3))] == [True]
    assert added(context(3)) != added(context(3.5))
    assert len({str(added(context(value))) for value in (False, 0, (), "", None)}) == 5
    mesh = jax.make_mesh((1,), ("i",), axis_types=(AxisType.Explicit,), devices=jax.devices("cpu")[:1])
    assert {"mesh.concrete", "mesh.ambient"} <= set(added(lambda: jax.set_mesh(mesh)))
    renamed = jax.make_mesh((1,), ("j",), axis_types=(AxisType.Explicit,), devices=jax.devices("cpu")[:1])
    assert added(lambda: jax.set_mesh(mesh)) != added(lambda: jax.set_mesh(renamed))


def test_two_user_contexts_are_told_apart(run_python):
    run_python("""
import jax
from prejit.key import environment_ingredients
first, second = jax.make_user_context(None), jax.make_user_context(None)
ask = lambda: environment_ingredients("module", platform="cpu", devices=jax.devices())
before = ask()
with first(1): one = ask()
with second(1): two = ask()
assert len({before, one, two}) == 3
""")


def test_a_context_without_identity_is_refused():
    context = jax.make_user_context(default_value=None)
    with context(threading.Lock()), pytest.raises(KeyingError, match="user_context"):
        ingredients()


def test_modules_need_neither_the_cpu_nor_flags():
    names = set(ingredients("module"))
    assert {"prejit", "module.jax", "module.jaxlib", "platform", "nr_devices"} == names
    assert {"cpu_features", "cpu_model", "device_kind", "xla_options"} <= set(ingredients())


def test_compiler_options_show_sorted_and_typed():
    one = ingredients(compiler_options={"b": 1, "a": True})
    assert one["compiler_option.a"] == "true"
    assert one == ingredients(compiler_options={"a": True, "b": 1})
    assert one != ingredients(compiler_options={"a": 1, "b": 1})
    assert ingredients("module", compiler_options={"a": 1}) == ingredients("module")


def test_nothing_of_this_process_or_machine_by_name():
    import os
    import socket

    text = json.dumps(ingredients())
    for name in (os.getcwd(), socket.gethostname(), str(os.getpid())):
        assert f'"{name}"' not in text
        assert len(name) < 5 or name not in text


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("", ()),
        ("--xla_b=2 --xla_a=1", (("xla_a", "1"), ("xla_b", "2"))),
        ("--xla_a=1 --xla_a=2", (("xla_a", "2"),)),
        ("--xla_a --xla_b=", (("xla_a", "true"), ("xla_b", ""))),
        ("--xla_a='x y' -xla_b=\"z\"", (("xla_a", "x y"), ("xla_b", "z"))),
        ("  --xla_dump_to=/tmp/x  --xla_dump_hlo_as_text ", ()),
        ("--xla_force_host_platform_device_count=8 --xla_cpu_max_isa=AVX2", (("xla_cpu_max_isa", "AVX2"),)),
        ("/etc/flags", ()),
    ],
)
def test_flags_are_parsed(text, flags):
    assert parse_flags(text) == flags


def test_every_ignored_flag_has_a_reason():
    assert all(IGNORED_FLAGS.values())
    assert all(IRRELEVANT.values())


SCRIPT = """
import jax, json
from prejit.key import environment_ingredients
print(json.dumps(environment_ingredients("executable", platform="cpu", devices=jax.devices()[:1])))
"""


def test_flags_that_only_dump_change_nothing_and_others_do(run_python, tmp_path):
    def under(flags, **env):
        return json.loads(run_python(SCRIPT, env={"XLA_FLAGS": flags, **env}).stdout)

    plain = under("")
    assert under(f"--xla_dump_to={tmp_path}/dump --xla_dump_hlo_as_text --xla_dump_hlo_as_proto=true") == plain
    assert under("--xla_force_host_platform_device_count=2") == plain
    assert under("", PYTHONHASHSEED="7") == plain
    fast = under("--xla_cpu_enable_fast_math=true")
    assert dict(fast)["XLA_FLAGS.xla_cpu_enable_fast_math"] == "true"
    assert dict(fast)["xla_options"] != dict(plain)["xla_options"]
    assert dict(under("--xla_cpu_max_isa=SSE4_2"))["xla_options"] != dict(plain)["xla_options"]


def test_a_flag_set_after_xla_has_read_the_variable_is_not_believed(run_python):
    late = "import os, jax; jax.devices(); import jax.numpy as jnp; jnp.ones(3) + 1\n" + SCRIPT.replace(
        "print(",
        "first = environment_ingredients('executable', platform='cpu', devices=jax.devices()[:1])\n"
        "os.environ['XLA_FLAGS'] = '--xla_cpu_enable_fast_math=true'\nprint(",
    )
    flags = {"XLA_FLAGS": ""}
    assert json.loads(run_python(late, env=flags).stdout) == json.loads(run_python(SCRIPT, env=flags).stdout)


def test_nr_devices_counts_the_assignment_not_the_machine(run_python):
    script = SCRIPT.replace("devices=jax.devices()[:1]", "devices=jax.devices()[1:3]")
    done = run_python(script, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4"})
    assert dict(json.loads(done.stdout))["nr_devices"] == "2"


def test_dispatch_token_follows_the_thread():
    token = around.dispatch_token()
    assert hash(token) == hash(around.dispatch_token())
    for setting in (jax.default_prng_impl("rbg"), jax.debug_nans(True), jax.debug_infs(True)):
        with setting:
            assert around.dispatch_token() != token
    assert around.dispatch_token() == token
    previous = jax.config.jax_high_dynamic_range_gumbel
    jax.config.update("jax_high_dynamic_range_gumbel", not previous)
    try:
        assert around.dispatch_token() != token
    finally:
        jax.config.update("jax_high_dynamic_range_gumbel", previous)


def test_importing_pallas_changes_nothing(run_python):
    late = "import jax.experimental.pallas\n" + SCRIPT
    assert run_python(late).stdout == run_python(SCRIPT).stdout


def test_an_option_that_appears_later_counts_at_once(run_python):
    script = """
import jax
from jax._src import config
from prejit.key import environment_ingredients
names = lambda: [i.name for i in environment_ingredients("module", platform="cpu", devices=jax.devices())]
before = names()
config.bool_state(name="jax_some_new_option", default=True, help="")
assert names() == [*before, "option.jax_some_new_option"], names()
"""
    run_python(script)


def test_ingredients_are_the_same_objects_when_nothing_changed():
    devices = jax.devices("cpu")[:1]
    one = environment_ingredients("executable", platform="cpu", devices=devices)
    assert environment_ingredients("executable", platform="cpu", devices=devices) is one
    with jax.enable_x64(True):
        jnp.ones(2)
        assert environment_ingredients("executable", platform="cpu", devices=devices) is not one
