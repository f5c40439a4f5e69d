#!/usr/bin/env bash
# The four trainings behind the agent of the package, `breakout_ppo`: three quarters of an hour on an NVIDIA H100 with
# 16 CPU cores. Each begins with the averaged weights of the one before.
#
#     tools/train_shipped_agent.sh
#     python tools/make_pretrained.py experiments/shipped_agent/fourth --name breakout_ppo \
#         --config configs/breakout_ppo_gpu_config.py --temperature 1 --card
#
# Called again after an interruption, it resumes where it was. MORE are further options of each training, such as
# MORE='--seed 1 --set env.collector_env_num=128'; they replace the options below.
set -euo pipefail

OUT=${OUT:-experiments/shipped_agent}
HOURS=${HOURS:-0.17 0.15 0.20 0.22}
MORE=${MORE:-}

read -r HOURS_1 HOURS_2 HOURS_3 HOURS_4 <<< "$HOURS"
CONFIG=$(dirname "$0")/../configs/breakout_ppo_gpu_config.py

# train NAME HOURS [OPTION...]: twice the channels of Mnih et al. 2015, two residual blocks, no evaluation on the way
train() {
    # shellcheck disable=SC2086
    breakout train -c "$CONFIG" --auto-resume --exp-name "$OUT/$1" --hours "$2" \
        --set 'policy.model.encoder_hidden_size_list=[64, 128, 128, 128, 128, 512]' \
        --set policy.eval.evaluator.eval_freq=10000000 "${@:3}" $MORE
    breakout average "$OUT/$1" --last 16 --temperature 1 -o "$OUT/$1.safetensors"
}

# 3 passes over 16,384 env steps of 512 environments
LARGE=(--set env.collector_env_num=512 --set policy.collect.n_sample=16384 --set policy.learn.batch_size=2048
    --set policy.learn.update_per_collect=24 --set env.late_start_probability=0.6)

train first "$HOURS_1"

train second "$HOURS_2" --from "$OUT/first.safetensors" "${LARGE[@]}" \
    --set policy.learn.learning_rate=0.0004 --set policy.learn.lr_end=0.00002 \
    --set policy.discount_factor=0.998 --set policy.learn.discount_end=0.999 \
    --set env.life_loss_penalty=-3 --set env.collector.max_episode_frames=60000

train third "$HOURS_3" --from "$OUT/second.safetensors" "${LARGE[@]}" \
    --set policy.learn.learning_rate=0.0003 --set policy.learn.lr_end=0.00001 \
    --set policy.discount_factor=0.999 --set policy.learn.discount_end=0.9994 \
    --set env.life_loss_penalty=-2 --set env.collector.max_episode_frames=16000 \
    --set env.collector.random_action_probability=0.01

# 4 passes
train fourth "$HOURS_4" --from "$OUT/third.safetensors" "${LARGE[@]}" \
    --set policy.learn.learning_rate=0.0003 --set policy.learn.lr_end=0.00001 \
    --set policy.discount_factor=0.9992 --set policy.learn.discount_end=0.9994 \
    --set policy.learn.update_per_collect=32 \
    --set env.life_loss_penalty=-2 --set env.collector.max_episode_frames=16000 \
    --set env.collector.random_action_probability=0.01
