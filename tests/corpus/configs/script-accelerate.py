import bitsandbytes as bnb
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM

GRAD_ACC = 8


def training_function(config, micro):
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=GRAD_ACC)
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", attn_implementation="flash_attention_2")
    loader = DataLoader(tokenized, batch_size=micro, collate_fn=collate)
    optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=config["lr"])
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
