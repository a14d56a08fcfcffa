import torch
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

name = "Qwen/Qwen2-0.5B-Instruct"
model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
ref_model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)
args = DPOConfig(
    "out", per_device_train_batch_size=4, gradient_checkpointing=True, max_length=1280, beta=0.1, bf16=True
)
DPOTrainer(model, ref_model=ref_model, args=args, train_dataset=data).train()
