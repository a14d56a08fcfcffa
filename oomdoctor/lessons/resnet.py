"""The training memory of a ResNet-50, worked out layer by layer: what someone from computer vision knows by heart.

Shapes: He et al. 2016, table 1, with the stride in the 3x3 convolution of a block, as torchvision has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

IMAGE, CLASSES = 224, 1000
FP32 = 4  # bytes
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first
_EXPANSION = 4


class Conv(NamedTuple):
    """A convolution with its BatchNorm. size: of its input and output, in pixels of a side."""

    inputs: int
    outputs: int
    kernel: int
    size_in: int
    size_out: int
    after: str = "relu"  # what follows the BatchNorm: a ReLU in place, the sum of the block, or nothing (a shortcut)

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs * self.kernel**2 + 2 * self.outputs

    @property
    def output(self) -> int:
        """Numbers that it puts out for one image."""
        return self.outputs * self.size_out**2


def convolutions() -> Iterator[Conv]:
    """All 53, in order."""
    yield Conv(3, 64, 7, IMAGE, IMAGE // 2)
    channels, size = 64, IMAGE // 4
    for width, blocks, first_stride in _STAGES:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            wide, smaller = width * _EXPANSION, size // stride
            yield Conv(channels, width, 1, size, size)
            yield Conv(width, width, 3, size, smaller)
            yield Conv(width, wide, 1, smaller, smaller, after="sum")
            if block == 0:
                yield Conv(channels, wide, 1, size, smaller, after="nothing")
            channels, size = wide, smaller


def parameters() -> int:
    """25,557,032, as torchvision's resnet50 has them."""
    return sum(conv.parameters for conv in convolutions()) + (512 * _EXPANSION + 1) * CLASSES


def kept_numbers() -> int:
    """Numbers that autograd keeps of one image for the backward pass.

    Each convolution's output is kept as the input of its BatchNorm. What goes into a convolution is the output of a
    ReLU in place, kept once however many layers read it: behind each convolution but the shortcuts'. Besides: the
    image, what max-pooling puts out and its indices (8 bytes each), and the classifier's input.
    """
    outputs = sum(conv.output for conv in convolutions())
    rectified = sum(conv.output for conv in convolutions() if conv.after != "nothing")
    pooled = 64 * (IMAGE // 4) ** 2
    return outputs + rectified + 3 * IMAGE**2 + 3 * pooled + 512 * _EXPANSION


def figures() -> dict[str, int]:
    """Parameters, and bytes in fp32: weights, gradients, SGD's momentum, and what one image and 64 keep."""
    weights = FP32 * parameters()
    return {
        "parameters": parameters(),
        "weights": weights,
        "gradients": weights,
        "momentum": weights,
        "image": FP32 * kept_numbers(),
        "batch": 64 * FP32 * kept_numbers(),
    }
