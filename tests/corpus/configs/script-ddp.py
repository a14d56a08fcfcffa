import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2LMHeadModel

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
model = GPT2LMHeadModel.from_pretrained("openai-community/gpt2-medium").to(rank)
model = DDP(model, device_ids=[rank])
loader = torch.utils.data.DataLoader(data, batch_size=int(os.environ.get("BATCH", "8")), num_workers=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
