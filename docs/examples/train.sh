#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
TP=${TP:-8}
MODEL_ARGS=(
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336
    --num-attention-heads 32 --group-query-attention --num-query-groups 8
    --swiglu --normalization RMSNorm --disable-bias-linear
    --position-embedding-type rope --untie-embeddings-and-output-weights
    --vocab-size 128256 --seq-length 8192 --max-position-embeddings 8192
)
srun torchrun --nproc-per-node 8 --nnodes $SLURM_NNODES pretrain_gpt.py \
    "${MODEL_ARGS[@]}" --bf16 --micro-batch-size 1 --global-batch-size 128 \
    --tensor-model-parallel-size $TP --sequence-parallel \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
