#!/usr/bin/env bash
# Records sessions on a machine with an NVIDIA card, as this folder holds them: random weights, one database.
#
#   record.sh FLUX CUDA_BUILD VULKAN_BUILD FOLDER STEP...
#
# Steps, in order; a model is a shape of `flux model synth`:
#   tune:MODEL:BUILD:GOAL      a tuning; BUILD is cuda or vulkan
#   plan:MODEL:LIMIT           placements within LIMIT of device memory (8GiB), measured
#   ab:MODEL                   CUDA against Vulkan
#   aa:MODEL:BUILD:TIMES       stock against stock
#   sensors:MODEL:BUILD:PAIRS  llama-bench alone against llama-bench beside `flux monitor`, in turns
#   resume:SESSION             a session that was broken off
#
# FOLDER keeps models and the database (FOLDER/data/flux.db); given again, it goes on there. A step that fails is told, and the
# next one begins.
set -euo pipefail

[ $# -ge 5 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
binary=$(realpath "$1") folder=$4
builds=(cuda "$2" vulkan "$3")
shift 4
mkdir -p "$folder"
flux() { "$binary" --data-dir "$folder/data" "$@"; }

model() {
  [ -e "$folder/$1.gguf" ] || flux model synth "$1" -o "$folder/$1.gguf" >/dev/null
  echo "$folder/$1.gguf"
}

if [ ! -e "$folder/data/flux.db" ]; then
  for at in 0 2; do flux runtime add "${builds[at + 1]}" --name "${builds[at]}"; done
  flux scan --bandwidth
fi

# One process of llama-bench, its records added to the file of its arm; arm B while every sensor is read as in a session.
bench() {
  local arm=$1 build=$2 file=$3 monitor=
  if [ "$arm" = B ]; then
    "$binary" --data-dir "$folder/data" --quiet monitor --csv - >/dev/null 2>&1 &
    monitor=$!
  fi
  LD_LIBRARY_PATH=$build "$build/llama-bench" -m "$file" -o jsonl -r 3 -p 512 -n 128 2>/dev/null >>"$folder/sensors-$arm.jsonl"
  [ -z "$monitor" ] || { kill "$monitor" && wait "$monitor" || true; }
}

# In turns A-B-B-A, as a confirmation runs, after one process that warms up.
sensors() {
  local file build=${builds[1]} pairs=$3
  file=$(model "$1")
  [ "$2" = cuda ] || build=${builds[3]}
  bench A "$build" "$file"
  rm -f "$folder"/sensors-?.jsonl
  for pair in $(seq "$pairs"); do
    if [ $((pair % 2)) = 1 ]; then order='A B'; else order='B A'; fi
    for arm in $order; do bench "$arm" "$build" "$file"; done
  done
  flux compare "$folder/sensors-A.jsonl" "$folder/sensors-B.jsonl"
}

for step in "$@"; do
  IFS=: read -r what name a b <<<"$step"
  echo "== $step"
  begun=$SECONDS
  case $what in
  tune) flux tune -m "$(model "$name")" --runtime "$a" --goal "$b" --processes 8 ;;
  plan)
    flux plan -m "$(model "$name")" --runtime cuda --vram-limit "$a" --bench --goal generation \
      --processes 8 --prompt-tokens 256 --gen-tokens 32
    ;;
  ab) flux ab -m "$(model "$name")" stock vulkan --runtime cuda --processes 6 ;;
  aa) for _ in $(seq "$b"); do flux ab -m "$(model "$name")" stock stock --runtime "$a" --processes 4 --reps 3; done ;;
  sensors) sensors "$name" "$a" "$b" ;;
  resume) flux tune --resume "$name" ;;
  *) echo "no such step: $step" >&2 && exit 2 ;;
  esac || echo "== $step failed"
  echo "== $step took $((SECONDS - begun)) s"
done
