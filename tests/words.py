"""Words that may name a dimension: legal names with a meaning in the compiler, Python or isl."""

from __future__ import annotations

import builtins
import keyword
import string
from typing import Final


def _words(text: str) -> list[str]:
    return text.split()


# Words of isl's language, and isl's names for unnamed dimensions.
OF_ISL: Final = _words("""
    exists implies all mod floor floord ceil ceild min max infinity infty nan true false rat int
    e0 e1 i0 i1 o0 o1 p0 c0 c1 c2 S0 S1 domain schedule
""")

# Names in generated programs, block dimensions, columns of logs and parts of names of files.
OURS: Final = _words("""
    rt rt_x0 rt_out rt_new rt_live rt_length rt_lengths rt_most program kernel_1 start_v3_0 pad_3_0
    new_v3_0 v1_0 v3_0 merge_3 output_3 free_V0 fetch_V0 offload_V1 V0 op_3 x_3 sum_4 add_5 dataflow_5
    v value turn turns seconds point seed seeds seed_ lengths along length size axis t_block b_block
    i_block t_bound array counter state env at index part_length short_length T_here turn0 name ctx
    where step final ended outputs columns leave return_ S1_ rt_ mod_ e0_ e0__
""")

OF_PYTHON: Final = [*dir(builtins), *keyword.softkwlist, *_words("self cls jax jnp np lax trl")]

WORDS: Final = tuple(
    word
    for word in dict.fromkeys((*OURS, *OF_ISL, *string.ascii_letters, *OF_PYTHON))
    if word.strip("_") and not keyword.iskeyword(word)
)


def bound_of(name: str) -> str:
    """Return the name of a dimension's bound."""
    return name.upper() if name.upper() != name else f"{name}_bound"


def are_legal(*names: str) -> bool:
    """Return whether one program may have dimensions of all these names."""
    taken = [*names, *map(bound_of, names)]
    return len(set(taken)) == len(taken)
