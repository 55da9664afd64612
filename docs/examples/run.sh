#!/usr/bin/env bash
# for Megatron-LM, core 0.20 (source of 2026-08-22)
# made by: gpuscale memory llama3-8b --gpus 8 --cluster dgx-h100 --seq-len 8192 --global-batch 4 --software megatron-core --tp 2
# expected: 64.0 GB on the fullest GPU
# 8 GPUs, 1 micro-batches of 1 a step
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
torchrun \
  --nproc-per-node=8 \
  --standalone \
  pretrain_gpt.py \
  --lr 3e-4 \
  --attention-dropout 0 \
  --hidden-dropout 0 \
  --mock-data \
  --tokenizer-type NullTokenizer \
  --tensor-model-parallel-size 2 \
  --pipeline-model-parallel-size 1 \
  --sequence-parallel \
  --tp-comm-overlap \
  --seq-length 8192 \
  --micro-batch-size 1 \
  --global-batch-size 4 \
  --train-iters 100 \
  --bf16 \
  --num-layers 32 \
  --hidden-size 4096 \
  --num-attention-heads 32 \
  --kv-channels 128 \
  --group-query-attention \
  --num-query-groups 8 \
  --swiglu \
  --ffn-hidden-size 14336 \
  --normalization RMSNorm \
  --position-embedding-type rope \
  --untie-embeddings-and-output-weights \
  --disable-bias-linear \
  --max-position-embeddings 8192 \
  --vocab-size 128256 \
  --use-distributed-optimizer \
  --overlap-grad-reduce \
  --overlap-param-gather
