#!/bin/bash
nproc_per_node=4

NPROC_PER_NODE=$nproc_per_node \
CUDA_VISIBLE_DEVICES=0,1,2,3 \
swift sft \
    --model Qwen/Qwen2.5-14B \
    --train_type full \
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh' \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps $(expr 32 / $nproc_per_node) \
    --packing true \
    --max_length 8192 \
    --attn_impl flash_attn \
    --use_liger_kernel true \
    --save_total_limit 2 \
    --deepspeed zero3_offload
