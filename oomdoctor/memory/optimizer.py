"""What an optimizer keeps per trained parameter, and what its step needs on top.

Source: the released classes of torch 2.13, transformers 5.24, bitsandbytes 0.50, torchao 0.18, schedulefree, optimi,
galore-torch, apollo-torch and lomo-optim, each run on the CPU with its tensors counted (tests/memory/test_optimizer.py
runs those that are installed). Names are those of transformers (`OptimizerNames`) and of axolotl.
"""

from functools import lru_cache
from typing import NamedTuple

from oomdoctor.memory.versions import Version

Pair = tuple[float, float]  # for 16-bit and for 32-bit parameters


class Kind(NamedTuple):
    """Bytes for 16-bit and for 32-bit parameters.

    states: for each parameter, from step to step. workspace: for each parameter, alive within a step that takes all
    parameters at once. of_largest: for each number of the largest tensor, where the step goes tensor by tensor. paged:
    the states are in managed memory, outside torch's allocator. of_tables: states of embeddings where they differ:
    transformers keeps them in 32 bits (bitsandbytes' override). carried: of of_largest, what the tensor before left,
    which a loop names until the next one takes its place. low_rank: matrices are stepped in a projection. in_backward:
    each gradient is used up as soon as it is there.
    """

    states: Pair = (0.0, 0.0)
    workspace: Pair = (0.0, 0.0)
    of_largest: Pair = (0.0, 0.0)
    paged: bool = False
    of_tables: float = 0.0
    carried: Pair = (0.0, 0.0)
    low_rank: bool = False
    in_backward: bool = False


LOOP: Pair = (6.0, 12.0)  # of AdamW that goes tensor by tensor, for each number of the largest
_ADAM_STATES = (4.0, 8.0)  # two tensors of the parameter's dtype
_8_BIT = 1 + 4 / 256  # a state of a byte, an fp32 scale for each block of 256
_4_BIT = 0.5 + 4 / 128  # torchao: half a byte, a scale for each block of 128

# The first entry whose words are all in the name.
_KINDS: tuple[tuple[tuple[str, ...], Kind], ...] = (
    (("adalomo",), Kind(states=(0.02, 0.02), of_largest=(8, 8), in_backward=True)),
    (("lomo",), Kind(of_largest=(8, 4), in_backward=True)),
    (("galore", "adafactor"), Kind(states=(0.02, 0.02), of_largest=(30, 26), low_rank=True)),
    (("galore", "8bit"), Kind(states=(2 * _8_BIT, 2 * _8_BIT), of_largest=(16, 24), low_rank=True)),
    (("galore",), Kind(states=_ADAM_STATES, of_largest=(16, 24), low_rank=True)),
    (("apollo",), Kind(states=_ADAM_STATES, of_largest=(6, 12), low_rank=True)),
    (
        ("adafactor",),
        Kind(states=(0.02, 0.02), of_largest=(20, 12), carried=(4, 4)),
    ),  # a row and a column of each matrix
    (("lion", "8bit"), Kind(states=(_8_BIT, _8_BIT), of_tables=4)),
    (("lion_pytorch",), Kind(states=(2, 4), of_largest=(4, 8))),
    (("lion",), Kind(states=(4, 4))),  # bitsandbytes: fp32, whatever the parameter
    (("rmsprop", "8bit"), Kind(states=(_8_BIT, _8_BIT), of_tables=4)),
    (("rmsprop", "bnb"), Kind(states=(4, 4))),
    (("rmsprop",), Kind(states=(2, 4), workspace=(2, 4))),
    (("adagrad",), Kind(states=(2, 4), workspace=(4, 8))),
    (("muon",), Kind(states=(2, 4), of_largest=(10, 12))),
    (("ademamix", "8bit"), Kind(states=(3 * _8_BIT, 3 * _8_BIT), of_tables=12)),
    (("ademamix",), Kind(states=(12, 12))),
    (("schedule_free_sgd",), Kind(states=(2, 4))),
    (("schedule_free_radam",), Kind(states=_ADAM_STATES)),
    (("stable_adamw",), Kind(states=(6, 8), workspace=(2, 4))),  # 16 bits: a third tensor for what rounding loses
    (("sgd",), Kind()),
    (("adam_mini",), Kind(states=(2, 4), of_largest=(6, 12))),
    (("torch_4bit",), Kind(states=(2 * _4_BIT, 2 * _4_BIT))),
    (("ao_", "4bit"), Kind(states=(2 * _4_BIT, 2 * _4_BIT))),
    (("torch_8bit",), Kind(states=(2 * _8_BIT, 2 * _8_BIT))),
    (("ao_", "8"), Kind(states=(2 * _8_BIT, 2 * _8_BIT))),  # 8bit and fp8
    (("8bit",), Kind(states=(2 * _8_BIT, 2 * _8_BIT), of_tables=8)),
    (("paged",), Kind(states=(8, 8))),
    (("bnb",), Kind(states=(8, 8))),
    (("anyprecision",), Kind(states=(8, 8), of_largest=(8, 8))),
    (("fused",), Kind(states=_ADAM_STATES)),
    (("adamw_hf",), Kind(states=_ADAM_STATES, of_largest=LOOP)),
)
_FOREACH_ADAM = Kind(states=_ADAM_STATES, workspace=(2, 4))
# torch before 2.1 makes the root of the second moments and then the denominator beside it (pytorch#97712, #104898);
# before 2.0 it goes tensor by tensor unless asked otherwise.
_TWO_TENSORS, _TWO_TENSORS_UNTIL = Kind(states=_ADAM_STATES, workspace=(4, 8)), (2, 1)
_ONE_BY_ONE, _ONE_BY_ONE_UNTIL = Kind(states=_ADAM_STATES, of_largest=LOOP), (2, 0)


@lru_cache(maxsize=64)
def kind_of(optim: str, torch: Version | None = None) -> Kind:
    """The kind of an optimizer, by its name in transformers. One that is not known is taken for AdamW of torch.

    torch: its major and minor version, today's where it is not given.
    """
    name = optim.lower()
    found = next((kind for words, kind in _KINDS if all(word in name for word in words)), _adam_of(torch))
    if "paged" in name:
        found = found._replace(paged=True)
    if name.endswith("layerwise"):
        found = found._replace(in_backward=True)
    return found


def _adam_of(torch: Version | None) -> Kind:
    if torch is not None and torch < _ONE_BY_ONE_UNTIL:
        return _ONE_BY_ONE
    return _TWO_TENSORS if torch is not None and torch < _TWO_TENSORS_UNTIL else _FOREACH_ADAM


def of(pair: Pair, number_bytes: int) -> float:
    """The figure for parameters of so many bytes."""
    return pair[1] if number_bytes == 4 else pair[0]
