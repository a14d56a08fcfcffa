"""A training step for `oomdoctor dry-run examples/cnn-step.py:step`: a small CNN in mixed precision.

What is made at import is made once; `step` is called twice, and its second call counts.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


def block(channels_in, channels_out):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


model = nn.Sequential(
    block(3, 64), block(64, 128), block(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step():
    images = torch.randn(64, 3, 224, 224, device=device)
    labels = torch.randint(0, 10, (64,), device=device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
