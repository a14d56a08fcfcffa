import argparse

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="EleutherAI/pythia-1.4b")
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--accumulate", type=int, default=4)
    args = parser.parse_args()

    model = AutoModelForCausalLM.from_pretrained(
        args.model, torch_dtype=torch.float32, attn_implementation="eager"
    ).cuda()
    model.gradient_checkpointing_enable()
    model = torch.compile(model)
    train_loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=2, pin_memory=True)
    val_loader = DataLoader(validation, batch_size=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step, batch in enumerate(train_loader):
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss / args.accumulate
        loss.backward()
        if step % args.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
