import lightning as L
from torch.utils.data import DataLoader
from transformers import AutoModelForSeq2SeqLM

model = AutoModelForSeq2SeqLM.from_pretrained("google-t5/t5-base")
train_loader = DataLoader(data, batch_size=16)
trainer = L.Trainer(
    max_epochs=3,
    accelerator="gpu",
    devices=2,
    strategy="deepspeed_stage_2",
    precision="bf16-mixed",
    accumulate_grad_batches=4,
)
trainer.fit(module, train_loader)
