"""The arithmetic of a ResNet-50 beside torch's own layers, on the meta device."""

from __future__ import annotations

import pytest

from oomdoctor.lessons import resnet

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = 4 * width
        self.first = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.second = nn.Sequential(
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)
        )
        self.third = nn.Sequential(nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide))
        self.relu = nn.ReLU(True)
        self.shortcut = (
            nn.Identity()
            if channels == wide
            else nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))
        )

    def forward(self, x: object) -> object:
        out = self.third(self.second(self.first(x)))
        out += self.shortcut(x)
        return self.relu(out)


def resnet50() -> object:
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Block(channels, width, stride if block == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def test_parameters_are_those_of_the_real_layers() -> None:
    with torch.device("meta"):
        model = resnet50()
    assert resnet.parameters() == sum(weight.numel() for weight in model.parameters()) == 25_557_032


def test_what_an_image_keeps_is_what_autograd_saves() -> None:
    images = 4
    with torch.device("meta"):
        model, batch = resnet50(), torch.empty(images, 3, 224, 224)
    weights = {weight.untyped_storage()._cdata for weight in (*model.parameters(), *model.buffers())}
    saved: dict[int, tuple[int, object]] = {}

    def pack(tensor: object) -> object:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            saved[storage._cdata] = (storage.nbytes(), tensor)  # kept, so that no other storage takes its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(batch)
    # Beside it autograd saves the means and deviations of each BatchNorm, whatever the batch is.
    statistics = sum(2 * 4 * conv.outputs for conv in resnet.convolutions())
    assert images * 4 * resnet.kept_numbers() + statistics == sum(size for size, _ in saved.values())
