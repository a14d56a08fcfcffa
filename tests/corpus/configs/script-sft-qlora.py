# Fine-tunes a chat model with QLoRA.
import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

base_model = "meta-llama/Llama-2-13b-hf"
dataset = load_dataset("timdettmers/openassistant-guanaco", split="train")

bnb_config = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_compute_dtype=torch.float16,
    bnb_4bit_use_double_quant=False,
)
model = AutoModelForCausalLM.from_pretrained(base_model, quantization_config=bnb_config, device_map={"": 0})
model.config.use_cache = False
tokenizer = AutoTokenizer.from_pretrained(base_model, trust_remote_code=True)
tokenizer.pad_token = tokenizer.eos_token

peft_args = LoraConfig(lora_alpha=16, lora_dropout=0.1, r=64, bias="none", task_type="CAUSAL_LM")
config = SFTConfig(
    output_dir="./results",
    num_train_epochs=1,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=1,
    optim="paged_adamw_32bit",
    save_steps=25,
    learning_rate=2e-4,
    fp16=True,
    group_by_length=True,
    dataset_text_field="text",
    max_length=768,
)
trainer = SFTTrainer(model=model, train_dataset=dataset, peft_config=peft_args, processing_class=tokenizer, args=config)
trainer.train()
