#!/usr/bin/env bash
set -e
MODEL=facebook/opt-1.3b
OUT=${1:-out}

python -m torch.distributed.launch --nproc_per_node 4 --use_env run_clm.py \
    --model_name_or_path $MODEL \
    --dataset_name wikitext \
    --dataset_config_name wikitext-2-raw-v1 \
    --block_size 1024 \
    --per_device_train_batch_size 8 \
    --per_device_eval_batch_size 8 \
    --do_train --do_eval \
    --fp16 \
    --optim adafactor \
    --output_dir $OUT 2>&1 | tee train.log
