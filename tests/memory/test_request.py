"""How allocators round: the sizes are those of public messages, the tensors follow by hand."""

import pytest

from oomdoctor.memory.request import could_be, tells_nothing
from oomdoctor.units import MIB, parse_size


@pytest.mark.parametrize(
    ("elements", "number_bytes", "printed"),
    [
        (18944 * 3584, 2, "130.00 MiB"),  # 129.5 MiB take 65 blocks of 2 MiB
        (13824 * 5120, 2, "136.00 MiB"),  # 135 MiB
        (6738415616 // 8, 4, "3.14 GiB"),
        (128256 * 4096, 2, "1002.00 MiB"),
    ],
)
def test_a_tensor_takes_whole_blocks_of_two_mib(elements: int, number_bytes: int, printed: str) -> None:
    assert could_be(elements * number_bytes, parse_size(printed))


def test_a_tensor_a_block_smaller_or_larger_is_another_one() -> None:
    assert could_be(86 * MIB, 86 * MIB) and could_be(86 * MIB - 1, 86 * MIB)
    assert not could_be(84 * MIB, 86 * MIB) and not could_be(86 * MIB + 512, 86 * MIB)


def test_ascend_adds_32_bytes_before_it_rounds() -> None:
    """24576 x 8192 x 2 B are 384 MiB: one block more on an NPU (a load of Qwen-72B)."""
    weight = 24576 * 8192 * 2
    assert could_be(weight, 386 * MIB, "npu_oom") and not could_be(weight, 384 * MIB, "npu_oom")
    assert could_be(weight, 384 * MIB) and not could_be(weight, 386 * MIB)


def test_the_first_versions_of_torch_rounded_to_128_kib() -> None:
    """28996 x 768 x 4 B are 84.95 MiB: the words of BERT, which an old message calls 85.00 MiB."""
    assert could_be(28996 * 768 * 4, 85 * MIB)


def test_blocks_of_2_and_20_mib_stand_for_anything() -> None:
    assert tells_nothing(2 * MIB) and tells_nothing(20 * MIB) and not tells_nothing(22 * MIB)
