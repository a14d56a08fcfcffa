import numpy as np
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

checkpoint = "FacebookAI/roberta-large"
tokenizer = AutoTokenizer.from_pretrained(checkpoint)
model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2)


def preprocess(examples):
    return tokenizer(examples["text"], truncation=True, padding="max_length", max_length=256)


def compute_metrics(eval_pred):
    return {"accuracy": (np.argmax(eval_pred.predictions, -1) == eval_pred.label_ids).mean()}


args = TrainingArguments(
    "out",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=128,
    eval_strategy="epoch",
    bf16=True,
    learning_rate=2e-5,
)
trainer = Trainer(model, args, train_dataset=train, eval_dataset=test, compute_metrics=compute_metrics)
trainer.train()
